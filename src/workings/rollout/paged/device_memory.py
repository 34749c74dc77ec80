"""GPU memory at a fixed address that can be given back and taken again.

A CUDA graph holds the addresses of what it reads, so a cache that is freed and allocated anew would
cost a new capture of every graph. The driver keeps addresses and memory apart (its virtual memory
management): here the address is reserved once, and `unmap` and `map` take the memory away from
under it and put new memory there. What was in it is gone.
"""

from __future__ import annotations

import ctypes
import weakref
from functools import cache, partial
from typing import Any

import torch

from workings.errors import EngineError, EngineMemoryError

PINNED_ON_DEVICE = 1  # CU_MEM_ALLOCATION_TYPE_PINNED
LOCATION_DEVICE = 1  # CU_MEM_LOCATION_TYPE_DEVICE
READ_AND_WRITE = 3  # CU_MEM_ACCESS_FLAGS_PROT_READWRITE
RECOMMENDED = 1  # CU_MEM_ALLOC_GRANULARITY_RECOMMENDED
OUT_OF_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY


class _Location(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class _Flags(ctypes.Structure):
    _fields_ = (
        ("compression", ctypes.c_ubyte),
        ("gpu_direct_rdma", ctypes.c_ubyte),
        ("usage", ctypes.c_ushort),
        ("reserved", ctypes.c_ubyte * 4),
    )


class _Properties(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", _Location),
        ("windows_metadata", ctypes.c_void_p),
        ("flags", _Flags),
    )


class _Access(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = (("location", _Location), ("flags", ctypes.c_int))


class DeviceMemory:
    """So many bytes at one address of a CUDA device; given back when the last user is gone.

    Attributes:
        size: bytes, rounded up to what the driver hands out.
    """

    def __init__(self, num_bytes: int, device: torch.device) -> None:
        if num_bytes < 1:
            raise ValueError(f"num_bytes={num_bytes}; expected 1 or more")
        # The driver's calls need torch's context to be the current one of this thread.
        self.device = torch.zeros(1, device=device).device
        self._mapping = _Mapping(num_bytes, self.device)
        self.size = self._mapping.size
        # Tensors over the memory hold this object, so none outlives it. At exit the process's
        # memory is given back anyway, and the driver may be gone.
        self._release = weakref.finalize(self, self._mapping.free)
        self._release.atexit = False
        self._mapping.map()

    @property
    def address(self) -> int:
        """Where the memory is."""
        return self._mapping.address.value

    def map(self) -> None:
        """Puts memory at the address; EngineError where the device has too little."""
        self._mapping.map()

    def unmap(self) -> None:
        """Gives the memory back to the device; the address stays reserved."""
        self._mapping.unmap()

    def free(self) -> None:
        """Gives back the memory and the address; tensors over it must not be used any more."""
        self._release()

    def tensor(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """A tensor over the memory, from its start."""
        num_bytes = dtype.itemsize
        for length in shape:
            num_bytes *= length
        if num_bytes > self.size:
            raise ValueError(f"{list(shape)} of {dtype} needs {num_bytes} of {self.size} bytes")
        raw = torch.as_tensor(_Window(self, num_bytes), device=self.device)
        return raw.view(dtype).view(shape)


class _Mapping:
    """A reserved address and the memory at it, if there is any."""

    def __init__(self, num_bytes: int, device: torch.device) -> None:
        self._device = device
        location = _Location(LOCATION_DEVICE, device.index or 0)
        self._properties = _Properties(type=PINNED_ON_DEVICE, location=location)
        self._access = _Access(location, READ_AND_WRITE)
        grain = ctypes.c_size_t()
        _call(
            "cuMemGetAllocationGranularity",
            ctypes.byref(grain),
            ctypes.byref(self._properties),
            ctypes.c_int(RECOMMENDED),
        )
        self.size = -(-num_bytes // grain.value) * grain.value
        self._handle = ctypes.c_uint64()
        self._mapped = False
        self.address = ctypes.c_uint64()
        _call(
            "cuMemAddressReserve",
            ctypes.byref(self.address),
            ctypes.c_size_t(self.size),
            ctypes.c_size_t(0),
            ctypes.c_uint64(0),
            ctypes.c_uint64(0),
        )

    def map(self) -> None:
        if self._mapped:
            return
        self._create()
        _call(
            "cuMemMap",
            self.address,
            ctypes.c_size_t(self.size),
            ctypes.c_size_t(0),
            self._handle,
            ctypes.c_uint64(0),
        )
        _call(
            "cuMemSetAccess",
            self.address,
            ctypes.c_size_t(self.size),
            ctypes.byref(self._access),
            ctypes.c_size_t(1),
        )
        self._mapped = True

    def _create(self) -> None:
        create = partial(
            _driver().cuMemCreate,
            ctypes.byref(self._handle),
            ctypes.c_size_t(self.size),
            ctypes.byref(self._properties),
            ctypes.c_uint64(0),
        )
        status = create()
        if status == OUT_OF_MEMORY:
            # torch keeps freed blocks to itself until it is asked for them.
            torch.cuda.empty_cache()
            status = create()
        if status == OUT_OF_MEMORY:
            free, total = torch.cuda.mem_get_info(self._device)
            raise EngineMemoryError(
                f"the engine needs {self.size / 2**30:.1f} GiB for its key-value cache; "
                f"{free / 2**30:.1f} of {total / 2**30:.1f} GiB of {self._device} are free",
                hint="lower engine.gpu_memory_utilization or engine.max_batch_size",
            )
        _check("cuMemCreate", status)

    def unmap(self) -> None:
        if not self._mapped:
            return
        torch.cuda.synchronize(self._device)
        _call("cuMemUnmap", self.address, ctypes.c_size_t(self.size))
        _call("cuMemRelease", self._handle)
        self._mapped = False

    def free(self) -> None:
        self.unmap()
        if self.address.value:
            _call("cuMemAddressFree", self.address, ctypes.c_size_t(self.size))
            self.address = ctypes.c_uint64()


class _Window:
    """Bytes of a `DeviceMemory` by the protocol through which torch takes foreign memory."""

    def __init__(self, memory: DeviceMemory, num_bytes: int) -> None:
        self.memory = memory
        self.num_bytes = num_bytes

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": (self.num_bytes,),
            "typestr": "|u1",
            "data": (self.memory.address, False),
            "version": 2,
        }


@cache
def _driver() -> Any:
    return ctypes.CDLL("libcuda.so.1")


def _call(name: str, *arguments: Any) -> None:
    _check(name, getattr(_driver(), name)(*arguments))


def _check(name: str, status: int) -> None:
    if status:
        text = ctypes.c_char_p()
        _driver().cuGetErrorString(ctypes.c_int(status), ctypes.byref(text))
        message = (text.value or b"unknown error").decode()
        raise EngineError(f"the CUDA driver refused {name}: {message} (error {status})")
