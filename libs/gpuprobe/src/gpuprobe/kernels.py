"""The two kernels of the hardware suite as PTX text: one bound by arithmetic, one by memory.

PTX is compiled by the driver for the gpu it meets, so no compiler is needed there; ``sm_70`` is
the oldest target that newer drivers and every gpu with MPS limits (Volta and later) take. The
kernels compute nothing of use. They promise only how much work a launch is, see
:func:`operations` and :func:`bytes_moved`.
"""

import struct
from typing import Final

THREADS: Final = 256
"""Threads of a block, of both kernels."""

ACCUMULATORS: Final = 8
UNROLLED: Final = 16
_OPERATIONS_OF_FMA: Final = 2
_VECTOR_BYTES: Final = 16

_HEAD: Final = ".version 6.0\n.target sm_70\n.address_size 64\n"


def _f32(value: float) -> str:
    """The exact spelling of an f32 in PTX, whose decimal numbers are f64."""
    return f"0f{struct.unpack('<I', struct.pack('<f', value))[0]:08X}"


_FACTOR: Final = _f32(0.999)  # with the addend the values go towards 1 and are never denormal
_ADDEND: Final = _f32(0.001)
_SMALL: Final = _f32(1e-6)


def operations(*, blocks: int, rounds: int) -> int:
    """Floating-point operations of one launch of ``burn``; a fused multiply-add counts as two."""
    return blocks * THREADS * rounds * ACCUMULATORS * UNROLLED * _OPERATIONS_OF_FMA


def bytes_moved(vectors: int) -> int:
    """Bytes that one launch of ``copy`` reads and writes, of so many 16-byte vectors."""
    return 2 * _VECTOR_BYTES * vectors


def burn() -> str:
    """PTX of ``burn(u64 out, u32 rounds)``: chains of fused multiply-adds in registers.

    Every thread works on independent chains, so that the arithmetic units, not their latency, are
    the limit; the chains start apart, since equal ones would be computed once. ``out`` has room
    for one f32 a thread: a result that nobody could read would be compiled away.
    """
    chains = range(ACCUMULATORS)
    start = [f"add.f32 %chain{n}, %seed, {_f32(1.0 + n)};" for n in chains]
    body = [f"fma.rn.f32 %chain{n}, %chain{n}, {_FACTOR}, {_ADDEND};" for n in chains] * UNROLLED
    total = [f"add.f32 %seed, %seed, %chain{n};" for n in chains]
    lines = [
        ".visible .entry burn(.param .u64 out, .param .u32 rounds)",
        "{",
        ".reg .pred %more;",
        ".reg .b32 %id, %block, %width, %round, %rounds;",
        ".reg .b64 %out, %offset;",
        f".reg .f32 %seed, %chain<{ACCUMULATORS}>;",
        "ld.param.u64 %out, [out];",
        "ld.param.u32 %rounds, [rounds];",
        *_thread_id(),
        "cvt.rn.f32.u32 %seed, %id;",
        f"mul.f32 %seed, %seed, {_SMALL};",
        *start,
        "mov.u32 %round, 0;",
        "again:",
        *body,
        "add.u32 %round, %round, 1;",
        "setp.lt.u32 %more, %round, %rounds;",
        "@%more bra again;",
        *total,
        "cvta.to.global.u64 %out, %out;",
        "mul.wide.u32 %offset, %id, 4;",
        "add.u64 %out, %out, %offset;",
        "st.global.f32 [%out], %seed;",
        "ret;",
        "}",
    ]
    return _HEAD + "\n".join(lines) + "\n"


def copy() -> str:
    """PTX of ``copy(u64 from, u64 to, u64 vectors)``: 16 bytes a thread and step, all in order.

    An address that is not allocated makes it the kernel that fails: an illegal access is what a
    crash of a client means on a GPU.
    """
    lines = [
        ".visible .entry copy(.param .u64 from, .param .u64 to, .param .u64 vectors)",
        "{",
        ".reg .pred %done;",
        ".reg .b32 %id, %block, %width, %grid;",
        ".reg .b64 %from, %to, %at, %vectors, %step, %offset, %source, %target;",
        ".reg .f32 %x, %y, %z, %w;",
        "ld.param.u64 %from, [from];",
        "ld.param.u64 %to, [to];",
        "ld.param.u64 %vectors, [vectors];",
        "cvta.to.global.u64 %from, %from;",
        "cvta.to.global.u64 %to, %to;",
        *_thread_id(),
        "cvt.u64.u32 %at, %id;",
        "mov.u32 %grid, %nctaid.x;",
        "mul.wide.u32 %step, %grid, %width;",
        "again:",
        "setp.ge.u64 %done, %at, %vectors;",
        "@%done bra finished;",
        "shl.b64 %offset, %at, 4;",
        "add.u64 %source, %from, %offset;",
        "add.u64 %target, %to, %offset;",
        "ld.global.v4.f32 {%x, %y, %z, %w}, [%source];",
        "st.global.v4.f32 [%target], {%x, %y, %z, %w};",
        "add.u64 %at, %at, %step;",
        "bra again;",
        "finished:",
        "ret;",
        "}",
    ]
    return _HEAD + "\n".join(lines) + "\n"


def _thread_id() -> list[str]:
    """``%id`` of the thread in its grid; leaves the width of a block in ``%width``."""
    return [
        "mov.u32 %id, %tid.x;",
        "mov.u32 %block, %ctaid.x;",
        "mov.u32 %width, %ntid.x;",
        "mad.lo.u32 %id, %block, %width, %id;",
    ]
