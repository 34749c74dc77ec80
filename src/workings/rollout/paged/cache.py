"""The key-value cache: one tensor of pages, and which pages are free.

    memory   [layers, 2, pages, page_size, kv_heads, head_dim]
    pages    handed out by number, counted by how many sequences read them

A page that several samples of a prompt share is read by all and written by none: they write behind
it, on pages of their own.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from workings.errors import EngineError
from workings.rollout.paged.architecture import Architecture
from workings.rollout.paged.device_memory import DeviceMemory

PAGE_SIZE = 16
"""Tokens of a page. Small, so that little is lost at ends and much of a prompt can be shared."""


class PagedCache:
    """The memory of the cache; on CUDA it can be given back and taken again under its address.

    Attributes:
        num_pages: pages that it has.
    """

    def __init__(
        self,
        architecture: Architecture,
        *,
        num_pages: int,
        dtype: torch.dtype,
        device: torch.device,
        page_size: int = PAGE_SIZE,
    ) -> None:
        self.num_pages = num_pages
        self.page_size = page_size
        shape = (
            architecture.num_layers,
            2,
            num_pages,
            page_size,
            architecture.num_kv_heads,
            architecture.head_dim,
        )
        self._memory: DeviceMemory | None = None
        if device.type == "cuda":
            num_bytes = architecture.cache_bytes_per_token(dtype) * num_pages * page_size
            self._memory = DeviceMemory(num_bytes, device)
            self._pages = self._memory.tensor(shape, dtype)
        else:
            self._pages = torch.zeros(shape, dtype=dtype, device=device)

    @property
    def num_bytes(self) -> int:
        """Memory that it takes while it is awake."""
        return self._pages.numel() * self._pages.element_size()

    def layer(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        """(keys, values) of one layer, [pages, page_size, kv_heads, head_dim] each."""
        return self._pages[number, 0], self._pages[number, 1]

    def copy_pages(self, sources: torch.Tensor, targets: torch.Tensor) -> None:
        """Copies whole pages in all layers; both int64 [n] on the cache's device."""
        self._pages.index_copy_(2, targets, self._pages.index_select(2, sources))

    def sleep(self) -> None:
        """Gives the memory back; what the pages held is gone."""
        if self._memory is not None:
            self._memory.unmap()

    def wake(self) -> None:
        """Takes memory again; EngineError where there is too little."""
        if self._memory is not None:
            self._memory.map()

    def free(self) -> None:
        """Gives back memory and address; the cache is not usable any more."""
        self._pages = torch.empty(0)
        if self._memory is not None:
            self._memory.free()


class PagePool:
    """Which pages are free, and how many readers each of the others has."""

    def __init__(self, num_pages: int) -> None:
        self.num_pages = num_pages
        self._free = np.arange(num_pages - 1, -1, -1, dtype=np.int32)
        self._num_free = num_pages
        self._readers = np.zeros(num_pages, dtype=np.int32)

    @property
    def num_free(self) -> int:
        """Pages that `take` can give."""
        return self._num_free

    def take(self, count: int) -> NDArray[np.int32]:
        """So many free pages, with one reader each.

        Raises EngineError where there are fewer: the caller asks `num_free` first.
        """
        if count > self._num_free:
            raise EngineError(f"{count} pages were asked of a cache with {self._num_free} free")
        self._num_free -= count
        pages = self._free[self._num_free : self._num_free + count].copy()
        self._readers[pages] = 1
        return pages

    def share(self, pages: NDArray[np.int32]) -> None:
        """One more reader for each of `pages`, which are all in use and differ."""
        self._readers[pages] += 1

    def give_back(self, pages: NDArray[np.int32]) -> NDArray[np.int32]:
        """One reader less for each of `pages`, which differ; those that are free now."""
        self._readers[pages] -= 1
        if len(pages) and self._readers[pages].min() < 0:
            raise EngineError("a page of the cache was given back more often than it was taken")
        freed: NDArray[np.int32] = pages[self._readers[pages] == 0]
        self._free[self._num_free : self._num_free + len(freed)] = freed
        self._num_free += len(freed)
        return freed


class SharedPages:
    """Pages by what they hold, so that equal prompts are processed once.

    A page is known by the tokens in it and the page before it, which stands for all tokens before.
    The last page of a prompt may be part full: it cannot be shared, since its owner writes on, but
    it can be copied.
    """

    def __init__(self) -> None:
        self._pages: dict[tuple[int, tuple[int, ...]], int] = {}
        self._keys: dict[int, tuple[int, tuple[int, ...]]] = {}

    def find(self, parent: int, tokens: tuple[int, ...]) -> int | None:
        """The page that holds `tokens` behind page `parent` (-1: at the start)."""
        return self._pages.get((parent, tokens))

    def remember(self, page: int, parent: int, tokens: tuple[int, ...]) -> None:
        """From now on `page` is found by what it holds."""
        key = (parent, tokens)
        if key not in self._pages and page not in self._keys:
            self._pages[key] = page
            self._keys[page] = key

    def forget(self, pages: NDArray[np.int32]) -> None:
        """These pages are free, and will hold something else."""
        if self._keys:
            for page in pages.tolist():
                key = self._keys.pop(page, None)
                if key is not None:
                    del self._pages[key]
