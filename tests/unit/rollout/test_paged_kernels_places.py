import torch

from workings.rollout.paged.kernels.places import decode_places


def test_the_last_token_of_each_row_is_found() -> None:
    table = torch.tensor([[5, 6, 7], [1, 0, 9], [8, 8, 8], [3, 2, 4]], dtype=torch.int32)
    slots = torch.tensor([3, -1, 0, 1, 2], dtype=torch.int32)
    lengths = torch.tensor([9, 4, 0, 5], dtype=torch.int32)
    positions, places = decode_places(table, slots, lengths, 4)
    assert positions.tolist() == [4, -1, 8, 3, -1]
    assert places.tolist() == [2 * 4, -1, 7 * 4, 1 * 4 + 3, -1]
    assert positions.dtype == places.dtype == torch.int32
