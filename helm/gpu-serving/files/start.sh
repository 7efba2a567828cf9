#!/bin/sh
# Starts a model server on its share of a GPU: works out, from what the device plugin sets when the
# container starts, the fraction of the GPU that the server may take, and passes it to the server in
# the server's own way. POSIX sh and no program but the server's, since images differ; only the rule
# `quotient` needs awk, as the original did. The arithmetic is that of helm/tests/servingrule.py.
#
#   start.sh SERVER RULE CONTEXT_MIB PROCESSES PREFIX COMMAND [ARGUMENT...]
#
# SERVER: tensorflow, triton, vllm, torchserve or custom. RULE: share or quotient. PREFIX: of the
# plugin's variables. Exit status 64, with a sentence, where there is no fraction to give.
set -eu

refuse() {
  echo "gpushare: $*" >&2
  exit 64
}

# is_number TEXT: a decimal from 1 on, short enough for the shell's arithmetic.
is_number() {
  case $1 in
    '' | 0* | *[!0-9]* | ??????????*) return 1 ;;
  esac
}

# millionths AMOUNT: as a decimal; at least one, since servers read 0 as "no limit".
millionths() {
  if [ "$1" -lt 1 ]; then set -- 1; fi
  printf '%d.%06d' $(($1 / 1000000)) $(($1 % 1000000))
}

# ten_thousandths TEXT: of a decimal as the plugin writes it, such as 0.1750; empty where it is none.
ten_thousandths() {
  case $1 in
    [01].[0-9][0-9][0-9][0-9]) set -- "${1%.*}${1#*.}" ;;
    *) return 0 ;;
  esac
  while [ "$1" != "${1#0}" ]; do set -- "${1#0}"; done
  echo "$1"
}

# seen_memory: MiB of the GPU as a program here sees it. Under a memory limit of the driver this may
# be the limit and not the GPU; a large number where nothing limits or CUDA cannot be queried. A pod
# whose limit is above its share has GPUSHARE_MAY_BURST, from the chart, and not the plugin's limit.
seen_memory() {
  if [ -z "${NVIDIA_GPU_MEMORY_LIMIT-}${GPUSHARE_MAY_BURST-}" ]; then
    echo 9000000000000000000
  else
    python3 -c '
import ctypes
cuda, size, gpu = ctypes.CDLL("libcuda.so.1"), ctypes.c_size_t(), ctypes.c_int()
assert not cuda.cuInit(0) and not cuda.cuDeviceGet(ctypes.byref(gpu), 0)
assert not cuda.cuDeviceTotalMem_v2(ctypes.byref(size), gpu)
print(size.value >> 20)' 2>/dev/null || echo 9000000000000000000
  fi
}

[ $# -ge 6 ] || refuse 'usage: start.sh SERVER RULE CONTEXT_MIB PROCESSES PREFIX COMMAND...'
server=$1 rule=$2 context=$3 processes=$4 prefix=$5
shift 5

eval "container=\${${prefix}_GPU_MEM_CONTAINER-} gpu_units=\${${prefix}_GPU_MEM_DEV-}"
eval "indexes=\${${prefix}_GPU_MEM_IDX-0}"
is_number "$container" ||
  refuse "${prefix}_GPU_MEM_CONTAINER is '$container': no device plugin has allocated a share of a GPU"
is_number "$gpu_units" ||
  refuse "${prefix}_GPU_MEM_DEV is '$gpu_units': no device plugin has allocated a share of a GPU"
case $indexes in
  '' | *[!0-9,]* | ,* | *, | *,,*)
    refuse "${prefix}_GPU_MEM_IDX is '$indexes': the device plugin allocated no GPU" ;;
esac

# A pod's own /dev/shm lies over that of the MPS daemon, which its clients cannot do without.
if [ -n "${CUDA_MPS_PIPE_DIRECTORY-}" ] && [ -n "${GPUSHARE_OWN_SHM-}" ]; then
  refuse "MPS shares GPU $indexes, and /dev/shm of its own ($GPUSHARE_OWN_SHM) would hide the MPS" \
    'daemon from this server: leave sharedMemory (--share-memory) out'
fi

gpus=1 rest=$indexes
while [ "$rest" != "${rest#*,}" ]; do
  rest=${rest#*,} gpus=$((gpus + 1))
done
units=$((container / gpus))
if [ "$units" -lt 1 ] || [ "$units" -gt "$gpu_units" ]; then
  refuse "$container units cannot be on $gpus GPUs of $gpu_units units each"
fi

limit=${GPUSHARE_MEM_LIMIT_MIB-}
unit=1024 # an original plugin does not publish its unit: GiB was its default
if [ -n "$limit" ]; then
  is_number "$limit" || refuse "GPUSHARE_MEM_LIMIT_MIB is '$limit': not an amount in MiB"
  unit=$((limit / units))
  [ "$unit" -ge 1 ] || refuse "GPUSHARE_MEM_LIMIT_MIB is '$limit': less than 1 MiB a unit"
fi

if [ "$rule" = quotient ]; then
  fraction=$(awk "BEGIN { printf \"%.2f\", $units / $gpu_units }") || refuse 'this image has no awk'
  [ "$fraction" != 0.00 ] || fraction=$(millionths $((units * 1000000 / gpu_units)))
else
  share=$((units * unit))
  room=$((share / processes - context))
  [ "$room" -ge 1 ] ||
    refuse "a share of $share MiB is too small for a model: each of $processes processes" \
      "needs $context MiB for its CUDA context"
  # A GPU of N units may be all but one unit larger; its real size must not lift the limit.
  whole=$(((gpu_units + 1) * unit))
  # What the operator keeps of each GPU (reserveMiB) is in no unit, and programs see it: the
  # plugin's own fraction tells.
  parts=$(ten_thousandths "${GPUSHARE_MEM_FRACTION-}")
  if is_number "$parts"; then
    parts=$((parts * gpu_units))
    larger=$(((share * 10000 * (gpu_units + 1) + parts - 1) / parts))
    if [ "$larger" -gt "$whole" ]; then whole=$larger; fi
  fi
  seen=$(seen_memory)
  is_number "$seen" || seen=9000000000000000000
  if [ "$seen" -lt "$whole" ] && [ "$seen" -ge "$room" ]; then whole=$((seen + 1)); fi
  fraction=$(millionths $((room * 1000000 / whole)))
fi
echo "gpushare: $container of $gpu_units units on GPU $indexes: fraction $fraction" >&2

# PyTorch reads a limit from its environment since 2.10; older ones end on options unknown to them.
# It reads the first of two variables that is set, so the limit joins each that the user has set.
limit_pytorch() {
  version=$(python3 -c 'from importlib import metadata; print(metadata.version("torch"))' \
    2>/dev/null) || return 0
  major=${version%%.*} rest=${version#*.}
  minor=${rest%%.*}
  if is_number "$major" && is_number "1$minor" && [ $((major * 1000 + minor)) -ge 2010 ]; then
    limit=per_process_memory_fraction:$fraction
    if [ -n "${PYTORCH_CUDA_ALLOC_CONF-}" ]; then
      export PYTORCH_CUDA_ALLOC_CONF="$PYTORCH_CUDA_ALLOC_CONF,$limit"
    fi
    if [ -n "${PYTORCH_ALLOC_CONF-}" ] || [ -z "${PYTORCH_CUDA_ALLOC_CONF-}" ]; then
      export PYTORCH_ALLOC_CONF="${PYTORCH_ALLOC_CONF:+$PYTORCH_ALLOC_CONF,}$limit"
    fi
  else
    echo "gpushare: PyTorch $version takes no limit from outside: call" \
      'torch.cuda.set_per_process_memory_fraction(GPUSHARE_PROCESS_MEM_FRACTION)' >&2
  fi
}

export GPUSHARE_PROCESS_MEM_FRACTION="$fraction"
case $server in
  tensorflow) set -- "$@" "--per_process_gpu_memory_fraction=$fraction" ;;
  vllm)
    set -- "$@" "--gpu-memory-utilization=$fraction"
    if [ -n "${GPUSHARE_MODEL_MIB-}" ] && [ "$rule" = share ]; then
      cache=$((room - GPUSHARE_MODEL_MIB))
      [ "$cache" -ge 1 ] ||
        refuse "a share of $share MiB is too small: $GPUSHARE_MODEL_MIB MiB for the model and" \
          "$context MiB for the CUDA context leave nothing for the KV cache"
      set -- "$@" "--kv-cache-memory-bytes=$((cache * 1048576))"
    fi ;;
  triton)
    set -- "$@" "--backend-config=tensorflow,gpu-memory-fraction=$fraction"
    limit_pytorch ;;
  torchserve) limit_pytorch ;;
  *)
    limit_pytorch
    # JAX ends where it finds its old and its new variable; all its versions read the old one.
    if [ -z "${XLA_CLIENT_MEM_FRACTION-}" ]; then
      export XLA_PYTHON_CLIENT_MEM_FRACTION="${XLA_PYTHON_CLIENT_MEM_FRACTION-$fraction}"
    fi ;;
esac
exec "$@"
