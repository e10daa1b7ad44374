"""Chat templates of the kinds in use, shortened to what makes them special."""

from __future__ import annotations

LLAMA_2 = """
{%- if messages[0]['role'] == 'system' %}
{%- set rest = messages[1:] %}{% set system = messages[0]['content'] %}
{%- else %}{% set rest = messages %}{% set system = false %}{% endif %}
{%- for m in rest %}
{%- if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}
{{- raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
{%- endif %}
{%- if loop.index0 == 0 and system != false %}
{%- set content = '<<SYS>>\n' + system + '\n<</SYS>>\n\n' + m['content'] %}
{%- else %}{% set content = m['content'] %}{% endif %}
{%- if m['role'] == 'user' %}{{- bos_token + '[INST] ' + content.strip() + ' [/INST]' }}
{%- else %}{{- ' ' + content.strip() + ' ' + eos_token }}{% endif %}
{%- endfor %}"""

LLAMA_3 = """
{%- for m in messages %}
{%- set content = '<|start_header_id|>' + m['role'] + '<|end_header_id|>\n\n'
    + m['content'] | trim + '<|eot_id|>' %}
{%- if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}
{{- content }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"""

MISTRAL = """
{{- bos_token }}
{%- for m in messages %}
{%- if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}
{{- raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
{%- endif %}
{%- if m['role'] == 'user' %}{{- '[INST] ' + m['content'] + ' [/INST]' }}
{%- else %}{{- m['content'] + eos_token }}{% endif %}
{%- endfor %}"""

MISTRAL_LAST = """
{%- if messages[0]['role'] == 'system' %}
{%- set system = messages[0]['content'] %}{% set rest = messages[1:] %}
{%- else %}{% set rest = messages %}{% endif %}
{{- bos_token }}
{%- for m in rest %}
{%- if m['role'] == 'user' %}
{%- if loop.last and system is defined %}
{{- '[INST] ' + system + '\n\n' + m['content'] + '[/INST]' }}
{%- else %}{{- '[INST] ' + m['content'] + '[/INST]' }}{% endif %}
{%- else %}{{- ' ' + m['content'] + eos_token }}{% endif %}
{%- endfor %}"""

GEMMA = """
{{- bos_token }}
{%- if messages[0]['role'] == 'system' %}
{{- raise_exception('System role not supported') }}{% endif %}
{%- for m in messages %}
{%- set role = 'model' if m['role'] == 'assistant' else m['role'] %}
{{- '<start_of_turn>' + role + '\n' + m['content'] | trim + '<end_of_turn>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<start_of_turn>model\n' }}{% endif %}"""

QWEN_2 = """
{%- for m in messages %}
{%- if loop.first and messages[0]['role'] != 'system' %}
{{- '<|im_start|>system\nYou are helpful.<|im_end|>\n' }}{% endif %}
{{- '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{% endif %}"""

QWEN_3 = """
{%- set ns = namespace(last=0) %}
{%- for m in messages %}{% if m['role'] == 'user' %}{% set ns.last = loop.index0 %}{% endif %}
{%- endfor %}
{%- for m in messages %}
{%- if m['role'] != 'assistant' %}
{{- '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}
{%- else %}
{%- set thought = '' %}{% set content = m['content'] %}
{%- if '</think>' in content %}
{%- set thought = content.split('</think>')[0].split('<think>')[-1].strip('\n') %}
{%- set content = content.split('</think>')[-1].lstrip('\n') %}{% endif %}
{%- if loop.index0 > ns.last and (loop.last or thought) %}
{{- '<|im_start|>assistant\n<think>\n' + thought + '\n</think>\n\n' + content.lstrip('\n') }}
{%- else %}{{- '<|im_start|>assistant\n' + content }}{% endif %}
{{- '<|im_end|>\n' }}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{% endif %}"""
