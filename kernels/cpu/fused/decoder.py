"""A whole decoder on a CPU: its packed weights, its KV memory, and the steps it computes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch

from ramet.kernels.cpu.fused import attention, linear, outputs
from ramet.kernels.cpu.fused.fields import Job, Layer, Linear, Window
from ramet.kernels.cpu.fused.head import MOST_PIECES, pieces
from ramet.kernels.cpu.fused.inputs import row_bytes
from ramet.kernels.cpu.fused.jobs import LOGITS, STEP
from ramet.kernels.cpu.fused.lanes import DOT
from ramet.kernels.cpu.fused.likeliest import notes_bytes
from ramet.kernels.cpu.fused.memory import Room, scattered_zeros, zeros
from ramet.kernels.cpu.fused.phases import phase_bytes
from ramet.kernels.cpu.fused.step import PHASES_PER_LAYER
from ramet.kernels.cpu.fused.team import the_team
from ramet.kernels.cpu.fused.tile import PANEL, ROWS
from ramet.kernels.cpu.fused.units import Units, build_units
from ramet.kernels.cpu.fused.weights import PackedMatrix, pack, pack_gated
from ramet.kernels.decoder import DecoderShape, LayerTensors, RopeRows
from ramet.kernels.plan import IntArray

_SPARE_BLOCKS = 4
"""Blocks behind the pool's last, which a tile of keys may read."""
_LEAST_ROWS = 64
_LEAST_POSITIONS = 2048


class Decoder:
    """Weights, memory for `num_slots` tokens, and everything a step needs, allocated once.

    Weights are int8 with one scale per output, what is multiplied with them is bytes with one per
    block or float32 (`inputs`), sums, norms and the residual stream are float32, queries, K and V
    bfloat16: `reference.quantised_linear` and `reference.tree_attention` say what each part
    computes.
    `layers` are read one after the other and may be made on the way; without `head` the embedding
    is it. Raises ValueError for a weight that isn't finite.
    """

    def __init__(
        self,
        shape: DecoderShape,
        layers: Iterable[LayerTensors],
        embedding: torch.Tensor,
        final_norm: torch.Tensor,
        head: torch.Tensor | None,
        rope_rows: RopeRows,
        num_slots: int,
        threads: int,
    ) -> None:
        self.shape = shape
        self.threads = the_team(threads).size
        self._rope_rows = rope_rows
        self._job = np.zeros(len(Job), dtype=np.int64)
        self._kept: dict[str, torch.Tensor] = {}
        """The memory that the job's addresses point to, by name."""
        self._capacity = 0
        """Rows that the buffers are for."""
        self._logits = torch.empty((0, shape.vocab))
        """What was given last."""
        self._linears = np.zeros((4 * shape.num_layers + 2, len(Linear)), dtype=np.int64)
        """Of each layer the four of `Layer`, and the two of the output head."""
        self._weights = Room()
        self._pack_ends(embedding, final_norm, head)
        self._windows: list[int] = []
        self._layers = np.zeros((shape.num_layers, len(Layer)), dtype=np.int64)
        blocks = -(-num_slots // 16) + _SPARE_BLOCKS
        self._make_pool(num_slots, blocks)
        for number, layer in enumerate(layers):
            self._pack_layer(number, layer)
        self._work: list[Units] = []
        """The units and offsets of each window's line."""
        self._window_lines = np.zeros((len(self._windows), len(Window)), dtype=np.int64)
        first, size = self._window_lines.ctypes.data, 8 * len(Window)
        self._window_of = self._layers[:, Layer.WINDOW].copy()
        self._layers[:, Layer.WINDOW] = first + size * self._window_of
        self._set_sizes(blocks)

    # What stays

    def _keep(self, name: str, tensor: torch.Tensor) -> int:
        """Keep memory alive under a name; its address."""
        self._kept[name] = tensor
        return tensor.data_ptr()

    def _keep_matrix(self, name: str, matrix: PackedMatrix) -> tuple[int, int]:
        values = self._keep(name, matrix.values)
        return values, self._keep(f"{name}.scales", matrix.scales)

    def _keep_floats(self, name: str, tensor: torch.Tensor | None) -> int:
        if tensor is None:
            return 0
        floats = tensor.detach().float().contiguous().clone()
        if not bool(floats.isfinite().all()):
            raise ValueError(f"{name}: not all of its values are finite")
        return self._keep(name, floats)

    def _pack_ends(
        self, embedding: torch.Tensor, final_norm: torch.Tensor, head: torch.Tensor | None
    ) -> None:
        job = self._job
        matrix = pack(embedding, "embedding", self._weights)
        ends = self._keep_matrix("embedding", matrix)
        job[Job.EMBEDDING], job[Job.EMBEDDING_SCALES] = ends
        if head is not None:
            matrix = pack(head, "head", self._weights)
            ends = self._keep_matrix("head", matrix)
        self._head_block = matrix.values[0].nbytes
        """Bytes of 16 outputs of the head."""
        for line, mode in zip(self._linears[-2:], (outputs.STORE, outputs.LARGEST), strict=True):
            line[Linear.MODE], line[Linear.INPUTS] = mode, self.shape.hidden
            line[Linear.VALUES], line[Linear.SCALES] = ends
            line[Linear.OUTPUTS] = self.shape.vocab
            line[Linear.TO_STRIDE] = 4 * self.shape.vocab
        job[Job.HEAD] = self._linears[-2].ctypes.data
        job[Job.FINAL_NORM] = self._keep_floats("final_norm", final_norm)

    def _make_pool(self, num_slots: int, blocks: int) -> None:
        """K, V and the rows that logits go on from."""
        shape, padded = self.shape, self._padded
        size = (shape.num_layers, 2, shape.kv_heads, padded, blocks * 16)
        pool = scattered_zeros(size, torch.bfloat16)
        first, part = self._keep("pool", pool), pool[0, 0].numel() * pool.itemsize
        for number in range(shape.num_layers):
            self._layers[number, Layer.KEYS] = first + 2 * number * part
            self._layers[number, Layer.VALUES] = first + (2 * number + 1) * part
        kept = scattered_zeros((num_slots, shape.hidden), torch.float32)
        self._job[Job.KEPT] = self._keep("kept", kept)

    def _pack_layer(self, number: int, layer: LayerTensors) -> None:
        line = self._layers[number]
        for place, name in (
            (Layer.INPUT_NORM, "input_norm"),
            (Layer.Q_NORM, "q_norm"),
            (Layer.K_NORM, "k_norm"),
            (Layer.MLP_NORM, "mlp_norm"),
        ):
            line[place] = self._keep_floats(f"layers.{number}.{name}", getattr(layer, name))
        bias = self._keep_floats(f"layers.{number}.qkv_bias", layer.qkv_bias)
        kinds = (
            (Layer.QKV, layer.qkv, outputs.BIAS if bias else outputs.STORE),
            (Layer.OUTPUT, layer.output, outputs.ADD),
            (Layer.GATE_UP, layer.gate_up, outputs.GATE),
            (Layer.DOWN, layer.down, outputs.ADD),
        )
        for index, (place, weight, mode) in enumerate(kinds):
            product = self._linears[4 * number + index]
            line[place] = product.ctypes.data
            name = f"layers.{number}.{place.name.lower()}"
            matrix = (pack_gated if mode == outputs.GATE else pack)(weight, name, self._weights)
            product[Linear.MODE] = mode
            product[Linear.VALUES], product[Linear.SCALES] = self._keep_matrix(name, matrix)
            product[Linear.INPUTS], product[Linear.OUTPUTS] = matrix.inputs, matrix.outputs
            product[Linear.BIAS] = bias
            product[Linear.TO_STRIDE] = 4 * matrix.outputs
            if mode == outputs.GATE:
                product[Linear.TO_STRIDE] = 4 * self.shape.inner
        window = layer.window or 0
        if window not in self._windows:
            self._windows.append(window)
        line[Layer.WINDOW] = self._windows.index(window)

    @property
    def _padded(self) -> int:
        return -(-self.shape.head_dim // PANEL) * PANEL

    def _set_sizes(self, blocks: int) -> None:
        job, shape = self._job, self.shape
        job[Job.THREADS] = self.threads
        job[Job.NUM_LAYERS] = shape.num_layers
        job[Job.HIDDEN] = shape.hidden
        job[Job.HEADS] = shape.heads
        job[Job.KV_HEADS] = shape.kv_heads
        job[Job.DIM] = shape.head_dim
        job[Job.PADDED] = self._padded
        job[Job.INNER] = shape.inner
        job[Job.BLOCKS] = blocks
        floats = torch.tensor([shape.eps, shape.head_dim**-0.5])
        job[Job.EPS] = self._keep("eps", floats)
        job[Job.LAYERS] = self._layers.ctypes.data
        phases = max(shape.num_layers * PHASES_PER_LAYER + 2, MOST_PIECES + 7)
        job[Job.PHASE_BYTES] = phase_bytes(self.threads)
        size = phases * phase_bytes(self.threads)
        counters = torch.zeros(size // 8 + 8, dtype=torch.int64)
        job[Job.COUNTERS] = self._aligned("counters", counters)
        self._counters = self._kept["counters"].numpy()
        inputs = max(shape.hidden, shape.inner, shape.heads * shape.head_dim)
        bytes_each = max(linear.scratch_bytes(inputs), attention.scratch_bytes(self._padded))
        bytes_each = -(-bytes_each // 128) * 128
        scratch = torch.zeros((self.threads * bytes_each + 64) // 4)
        job[Job.SCRATCH] = self._aligned("scratch", scratch)
        job[Job.SCRATCH_BYTES] = bytes_each

    def _aligned(self, name: str, tensor: torch.Tensor) -> int:
        """Keep memory; the first address in it that begins a cache line."""
        address = self._keep(name, tensor)
        return address + -address % 64

    # What grows with the rows and positions that come

    def _make_room(self, rows: int) -> None:
        """Buffers for that many rows."""
        job, shape = self._job, self.shape
        if rows <= self._capacity:
            return
        capacity = max(_LEAST_ROWS, 1 << (rows - 1).bit_length())
        job[Job.CAPACITY] = self._capacity = capacity
        self._inputs = np.zeros((3, capacity), dtype=np.int64)
        for index, place in enumerate((Job.TOKENS, Job.POSITIONS, Job.SLOTS)):
            job[place] = self._inputs[index].ctypes.data
        room, attended = Room(), shape.heads * shape.head_dim
        outputs = attended + 2 * shape.kv_heads * shape.head_dim
        activations = torch.bfloat16 if DOT else torch.float32
        more = capacity + ROWS  # A tile reads whole heights.
        queries = (capacity + ROWS) * shape.heads
        for place, name, size, dtype in (
            (Job.X, "x", (capacity, shape.hidden), torch.float32),
            (Job.NORMS, "norms", (capacity, shape.hidden), torch.float32),
            (Job.NORMED, "normed", (more, row_bytes(shape.hidden)), torch.uint8),
            (Job.QKV, "qkv", (capacity, outputs), torch.float32),
            (Job.QUERIES, "queries", (queries, self._padded), activations),
            (Job.ATTENDED, "attended", (more, row_bytes(attended)), torch.uint8),
            (Job.GATES, "gates", (capacity, shape.inner), torch.float32),
            (Job.GATED, "gated", (more, row_bytes(shape.inner)), torch.uint8),
        ):
            job[place] = self._keep(name, room.take(size, dtype))
        self._linears[-2:, Linear.FROM] = job[Job.NORMED]
        self._linears[-1, Linear.TO] = self._keep(
            "notes", room.take((notes_bytes(capacity, shape.vocab),), torch.uint8)
        )
        job[Job.CHOSEN] = self._keep("chosen", torch.zeros(capacity, dtype=torch.int32))
        job[Job.LARGEST] = self._keep("largest", torch.zeros(capacity))
        products = self._linears[:-2].reshape(shape.num_layers, 4, len(Linear))
        for index, (source, target) in enumerate(
            (
                (Job.NORMED, Job.QKV),
                (Job.ATTENDED, Job.X),
                (Job.NORMED, Job.GATES),
                (Job.GATED, Job.X),
            )
        ):
            products[:, index, Linear.FROM] = job[source]
            products[:, index, Linear.TO] = job[target]

    def _make_partial_results(self, splits: int) -> None:
        """Buffers for what so many tasks find of each query of the step."""
        job = self._job
        wanted = splits * job[Job.ROWS] * self.shape.heads
        if "sums" in self._kept and wanted <= len(self._kept["sums"]):
            return
        count = max(_LEAST_ROWS * self.shape.heads, 1 << int(wanted - 1).bit_length())
        job[Job.PARTS] = self._keep("parts", zeros((count, self._padded), torch.float32))
        job[Job.MAXIMA] = self._keep("maxima", zeros((count,), torch.float32))
        job[Job.SUMS] = self._keep("sums", zeros((count,), torch.float32))

    def _make_positions(self, count: int) -> None:
        """Tables of cos and sin for the positions below `count`."""
        cos = self._kept.get("cos")
        known = 0 if cos is None else cos.shape[0]
        if count <= known:
            return
        size = max(_LEAST_POSITIONS, 1 << (count - 1).bit_length())
        half = self.shape.head_dim // 2
        tables = self._rope_rows(torch.arange(size))
        for place, name, table in zip((Job.COS, Job.SIN), ("cos", "sin"), tables, strict=True):
            self._job[place] = self._keep(name, table[:, :half].float().contiguous())

    # Steps

    def forward(
        self,
        token_ids: Sequence[int],
        positions: Sequence[int],
        slots: Sequence[int],
        items: IntArray,
        gathered: list[tuple[int, int]] | None = None,
    ) -> None:
        """As `kernels.decoder.Decoder`."""
        rows, job = len(token_ids), self._job
        self._make_room(rows)
        self._inputs[:, :rows] = (token_ids, positions, slots)
        self._make_positions(max(positions) + 1)
        job[Job.ROWS] = rows
        self._divide(items, self._inputs[1, :rows], gathered)
        self._run(STEP)

    def _divide(
        self, items: IntArray, row_pos: IntArray, gathered: list[tuple[int, int]] | None
    ) -> None:
        """Cut the attention's work to tasks, once for all layers of a window."""
        group = self.shape.heads // self.shape.kv_heads
        self._work = []
        for index, window in enumerate(self._windows):
            work = build_units(items, row_pos, group, self.shape.kv_heads, window, self.threads)
            self._work.append(work)
            self._make_partial_results(work.splits)
            line = self._window_lines[index]
            line[Window.SIZE], line[Window.ROW_BLOCKS] = window, work.blocks
            line[Window.UNITS], line[Window.OFFSETS] = (
                work.units.ctypes.data,
                work.offsets.ctypes.data,
            )
            line[Window.SPLITS], line[Window.PARTS] = work.splits, work.parts
            line[Window.FOLDED] = work.folded
            if gathered is not None:
                layers = int((self._window_of == index).sum())
                reads = [(slot, length) for slot, length in work.units[:, :2].tolist()]
                gathered.extend(reads * layers)

    def logits(self, slots: Sequence[int], masks: Sequence[bytes] | None = None) -> torch.Tensor:
        """As `kernels.decoder.Decoder`."""
        rows, job = len(slots), self._job
        # Fresh memory for each step costs the system's work for each of its pages.
        if rows != len(self._logits):
            self._logits = torch.empty((rows, self.shape.vocab), dtype=torch.float32)
        if rows:
            self._make_room(rows)
            self._inputs[2, :rows] = slots
            head = self._linears[-2]
            head[Linear.TO] = self._logits.data_ptr()
            lines = pieces(head, self._head_block, masks) if masks else None
            if lines is None:
                lines = self._linears[-2:-1]
            else:
                self._logits.fill_(-torch.inf)
            job[Job.ROWS] = rows
            job[Job.PIECES], job[Job.NUM_PIECES] = lines.ctypes.data, len(lines)
            self._run(LOGITS)
        return self._logits

    def likeliest(self, slots: Sequence[int]) -> tuple[list[int], list[float]]:
        """As `kernels.decoder.Decoder`."""
        rows = len(slots)
        if not rows:
            return [], []
        job, line = self._job, self._linears[-1:]
        self._make_room(rows)
        self._inputs[2, :rows] = slots
        job[Job.ROWS] = rows
        job[Job.PIECES], job[Job.NUM_PIECES] = line.ctypes.data, 1
        self._run(LOGITS)
        return self._kept["chosen"][:rows].tolist(), self._kept["largest"][:rows].tolist()

    def _run(self, kind: int) -> None:
        self._counters.fill(0)
        team = the_team(self.threads)
        if team.size != self.threads:
            raise RuntimeError("a decoder can't be used in a process forked from its own")
        team.run(kind, self._job.ctypes.data)
