"""The user's side of the engine: contexts and calls as programs hold them, and the channel.

`handle` and `call` are what the language talks to; `connection` numbers calls and hands out
events; `transport` starts and stops the engine; `channel` is how plain data crosses. Torch-free.
"""
