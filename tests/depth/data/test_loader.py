"""The loader: the right bytes in the right order with any threads, resumed anywhere; batches."""

import json
import os
import threading
from itertools import islice, zip_longest

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from zoerefine.base.config.schema import KEYS
from zoerefine.base.errors import UserError
from zoerefine.base.machine.memory import GPU_WORKERS, PAGE, aligned_empty, use_reserved_gpus
from zoerefine.depth.data.layouts.readers import open_dataset
from zoerefine.depth.data.loading import tiers
from zoerefine.depth.data.loading.augment import DRAWS, Augmentation, uniform_numbers
from zoerefine.depth.data.loading.batches import make_loader
from zoerefine.depth.data.loading.loader import Loader
from zoerefine.depth.data.loading.prefetch import Prefetcher
from zoerefine.depth.data.loading.sampler import ORDERS, OrderOptions, Sampler
from zoerefine.depth.data.loading.tiers import place_records

CPU = torch.device("cpu")


def loader(packed, batch=3, seed=0, order="shuffle", tier="mmap", threads=2, **options):
    packed = place_records(packed, tier, CPU)
    sampler = Sampler(packed, np.arange(len(packed)), batch, seed, OrderOptions(order))
    return Loader(packed, sampler, threads, **options)


def flat(lists):
    return [item for items in lists for item in items]


def indices(batches):
    return [batch.index.tolist() for batch in batches]


def test_batches_hold_what_the_cache_holds(packed):
    for batch in loader(packed):
        for row, index in enumerate(batch.index.tolist()):
            record = packed.read(index)
            np.testing.assert_array_equal(batch.rgb[row].permute(1, 2, 0), record["rgb"])
            for name in ("zoe", "depth", "objects"):
                np.testing.assert_array_equal(getattr(batch, name)[row, 0], record[name])
        assert (batch.rgb.dtype, batch.zoe.dtype) == (torch.uint8, torch.uint16)


@settings(max_examples=25)
@given(
    batch=st.integers(1, 20),
    seed=st.integers(0, 5),
    threads=st.integers(1, 4),
    tier=st.sampled_from(["mmap", "ram", "device"]),
    stop=st.integers(0, 20),
)
def test_order_depends_on_seed_and_epoch_alone_and_resumes_anywhere(
    packed, batch, seed, threads, tier, stop
):
    plain = loader(packed, batch, seed, threads=1)
    expected = [indices(plain), indices(plain)]
    assert sorted(flat(expected[0])) == list(range(len(packed)))
    assert all(len(epoch) == len(plain) for epoch in expected)
    first = loader(packed, batch, seed, threads=threads, tier=tier)
    seen = []
    for number, item in enumerate(first):
        if number == stop:
            break
        seen.append(item.index.tolist())
    again = loader(packed, batch, seed, threads=threads, tier=tier)
    again.load_state_dict({"epoch": 0, "batch": len(seen)})
    assert seen + indices(again) == expected[0]
    assert indices(again) == expected[1]


@pytest.mark.parametrize("tier", ["mmap", "ram", "device"])
def test_batches_hold_their_records(packed, tier):
    for batch in loader(packed, tier=tier):
        for row, index in enumerate(batch.index.tolist()):
            np.testing.assert_array_equal(batch.zoe[row, 0], packed.read(index)["zoe"])


def test_batches_share_two_buffers(packed):
    assert len({batch.rows.data_ptr() for batch in loader(packed)}) == 2


def page_offset(memory):
    """Bytes from the beginning of a page to an array's memory."""
    return memory.__array_interface__["data"][0] % PAGE


@pytest.mark.parametrize("size", [1, 1000, 393_216, 10_000_000])
@pytest.mark.parametrize("dtype", ["u1", "f8"])
def test_aligned_memory_begins_at_a_page_at_any_size(size, dtype):
    arrays = [aligned_empty((2, size // 2 + 1), dtype) for _ in range(3)]
    for array in arrays:
        array[:] = 1
        assert (page_offset(array), array.dtype) == (0, np.dtype(dtype))


@pytest.mark.parametrize("tier", ["mmap", "ram"])
@pytest.mark.parametrize("threads", [1, 2])
def test_rows_are_copied_to_aligned_memory(packed, tier, threads):
    batches = loader(packed, tier=tier, threads=threads)
    assert {page_offset(batch.rows.numpy()) for batch in batches} == {0}


def test_records_in_memory_and_single_records_are_aligned(packed):
    assert page_offset(place_records(packed, "ram", CPU).records.rows) == 0
    for index in range(len(packed)):
        assert page_offset(packed.read(index)["zoe"]) == 0  # a record's first field


def test_a_script_gets_batches_of_a_folder_in_two_calls(world, tmp_path):
    dataset = open_dataset(world)
    options = {"size": (24, 32), "cache_root": tmp_path, "device": "cpu"}
    batches = make_loader(dataset, 3, scenes=["scene01", "scene02"], seed=5, **options)
    kept = list(batches)
    assert len(kept) == len(batches) == 3
    packed = batches.loader.cache
    assert sorted(i for b in kept for i in b.index.tolist()) == list(range(4, 12))
    for batch in kept:
        for row, index in enumerate(batch.index.tolist()):
            zoe_m = packed.read(index)["zoe"] / 256
            np.testing.assert_allclose(batch.zoe_m[row, 0], zoe_m, rtol=1e-6)
    assert indices(batches) != indices(kept)  # the next epoch
    again = make_loader(dataset, 3, scenes=["scene01", "scene02"], seed=5, **options)
    assert indices(again) == indices(kept)
    assert len(make_loader(dataset, 3, order="sequential", **options)) == 6
    with pytest.raises(UserError, match="has no 'attic'; known: scene00, scene01"):
        make_loader(dataset, scenes=["attic"], **options)
    for name, value in (("tier", "tape"), ("batch", 0), ("order", "sorted"), ("threads", -1)):
        with pytest.raises(UserError, match=rf"LOADER\.{name.upper()} must be"):
            make_loader(dataset, **options, **{name: value})
    with pytest.raises(UserError, match=r"CACHE\.WIDTH must be"):
        make_loader(dataset, **options | {"size": (24, 0)})
    for name, value, message in (
        ("size", (48,), "size is height and width in pixels"),
        ("seed", -1, "SEED must be"),
        ("scenes", "scene01", "scenes is a list of names: write"),
        ("device", "cuda", "device cuda: this machine has no GPU"),
    ):
        if name != "device" or not torch.cuda.is_available():
            with pytest.raises(UserError, match=message):
                make_loader(dataset, **options | {name: value})


@pytest.mark.parametrize("tier", ["mmap", "device"])
def test_each_iteration_over_a_folder_is_a_whole_epoch(world, tmp_path, tier):
    options = {"size": (24, 32), "cache_root": tmp_path, "device": "cpu", "tier": tier}
    dataset = open_dataset(world)
    whole = make_loader(dataset, 3, **options)
    expected = [indices(whole) for _ in range(4)]
    assert len({str(epoch) for epoch in expected}) == 4
    batches = make_loader(dataset, 3, **options)
    assert next(iter(batches)).index.tolist() == expected[0][0]
    assert indices(batches) == expected[1]
    both = iter(batches), iter(batches)  # at the same time
    pairs = list(zip(*both, strict=True))
    assert [[b.index.tolist() for b in part] for part in zip(*pairs, strict=True)] == expected[2:]


def test_epochs_and_seeds_differ_and_a_sequential_order_does_not(packed):
    plain = loader(packed)
    assert indices(plain) != indices(plain)
    assert indices(loader(packed, seed=1)) != indices(loader(packed, seed=0))
    assert flat(indices(loader(packed, order="sequential"))) == list(range(len(packed)))


@settings(max_examples=25)
@given(
    order=st.sampled_from(list(ORDERS)),
    parts=st.lists(st.tuples(st.integers(0, 8), st.integers(1, 4)), min_size=1, max_size=4),
)
def test_a_state_keeps_to_the_semantics_of_torchs_stateful_samplers(packed, order, parts):
    """It counts what was taken, is plain data of its own, and is loaded with any number of ranks.

    The end of an epoch is the beginning of the next one.
    """
    plain = loader(packed, order=order)
    expected = flat(indices(plain) for _ in parts)
    state, seen = plain.state_dict() | {"epoch": 0}, []
    for count, world in parts:
        ranks = [loader(packed, order=order, rank=rank, world=world) for rank in range(world)]
        taken = []
        for one in ranks:
            one.load_state_dict(state)
            running = iter(one)
            taken.append(indices(islice(running, count)))
            stopped = json.dumps(one.state_dict())
            running.close()  # what was read ahead does not count
            assert one.state_dict() == json.loads(stopped) == ranks[0].state_dict()
        whole = [flat(zip_longest(*batch)) for batch in zip(*taken, strict=True)]
        seen += [[index for index in batch if index is not None] for batch in whole]
        before, state = state, ranks[0].state_dict()
        ranks[0].load_state_dict(before)
        assert state != before or not count  # a state does not change with its loader
    assert seen == expected[: len(seen)]


def test_a_config_may_choose_every_order():
    assert set(KEYS["LOADER.ORDER"].type.names) == set(ORDERS)


def test_a_loader_without_frames_is_refused(packed):
    with pytest.raises(UserError, match="no frames to load"):
        Sampler(packed, np.array([], np.int64), 4, 0, OrderOptions())


def prefetcher(packed, **options):
    return Prefetcher(loader(packed), CPU, **options)


@pytest.fixture
def batch(packed):
    """A batch in metres."""
    return next(iter(prefetcher(packed)))


def test_prefetched_batches_are_metres_and_stay_valid(packed):
    kept = list(prefetcher(packed))
    assert [b.index.tolist() for b in kept] == indices(loader(packed))
    for batch in kept:
        for row, index in enumerate(batch.index.tolist()):
            record = packed.read(index)
            depth_m = record["depth"].astype(np.float64) * packed.depth_scale
            np.testing.assert_allclose(batch.depth_m[row, 0], depth_m, rtol=1e-6)
            zoe_m = record["zoe"].astype(np.float64) / 256
            np.testing.assert_allclose(batch.zoe_m[row, 0], zoe_m, rtol=1e-6)
            rgb01 = record["rgb"].transpose(2, 0, 1) / 255
            np.testing.assert_allclose(batch.rgb01[row], rgb01, atol=1e-6)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_slots_are_not_overwritten_while_the_gpu_is_behind(packed):
    kept = []
    for batch in Prefetcher(loader(packed, pinned=True), torch.device("cuda")):
        kept.append(batch)
        torch.cuda._sleep(50_000_000)  # cycles: the reader is many batches ahead of the step
    torch.cuda.synchronize()
    for ours, theirs in zip(kept, prefetcher(packed), strict=True):
        for field in ("rgb01", "zoe_m", "depth_m", "objects"):
            torch.testing.assert_close(getattr(ours, field).cpu(), getattr(theirs, field))


def test_leaving_early_ends_the_readers(packed):
    before = set(threading.enumerate())
    for _ in prefetcher(packed):
        assert set(threading.enumerate()) - before
        break
    assert not set(threading.enumerate()) - before


def test_augmentation_depends_on_seed_epoch_and_index_alone(batch):
    change = Augmentation(flip=0.5, crop=0.5, color=0.3, pseudo_scale=0.1, depth_scale=0.1,
                          cutout=0.5)  # fmt: skip
    whole = change(batch, seed=1, epoch=2)
    fields = {name: field for name, field in vars(batch).items() if field is not None}
    one = type(batch)(**{name: field[1:2] for name, field in fields.items()})
    alone = change(one, seed=1, epoch=2)
    torch.testing.assert_close(alone.rgb01, whole.rgb01[1:2])
    assert torch.equal(alone.zoe_m, whole.zoe_m[1:2])
    assert torch.equal(alone.depth_m, whole.depth_m[1:2])
    other = change(batch, seed=1, epoch=3)
    assert not torch.equal(other.rgb01, whole.rgb01)


def test_a_flip_mirrors_all_fields_and_colour_changes_only_rgb(batch):
    flipped = Augmentation(flip=1.0)(batch, 0, 0)
    for name in ("rgb01", "zoe_m", "depth_m", "objects"):
        assert torch.equal(getattr(flipped, name), getattr(batch, name).flip(3)), name
    some = Augmentation(flip=0.5)(batch, 0, 0)
    mirrored = [torch.equal(*pair) for pair in zip(some.zoe_m, batch.zoe_m.flip(3), strict=True)]
    for k, field in enumerate(zip(some.rgb01, batch.rgb01, strict=True)):
        assert torch.equal(field[0], field[1].flip(2) if mirrored[k] else field[1])
    colored = Augmentation(color=0.5)(batch, 0, 0)
    assert not torch.equal(colored.rgb01, batch.rgb01)
    assert torch.equal(colored.zoe_m, batch.zoe_m)
    assert torch.equal(colored.depth_m, batch.depth_m)


def test_the_pseudo_depth_is_scaled_alone_or_with_the_truth_by_one_factor(batch):
    for name in ("pseudo_scale", "depth_scale"):
        scaled = Augmentation(**{name: 0.2})(batch, 0, 0)
        ratio = scaled.zoe_m / batch.zoe_m
        assert ratio.std(dim=(1, 2, 3)).max() < 1e-6
        assert ratio.mean(dim=(1, 2, 3)).std() > 1e-3
        if name == "pseudo_scale":
            assert torch.equal(scaled.depth_m, batch.depth_m)
        else:
            torch.testing.assert_close(scaled.depth_m, batch.depth_m * ratio[..., :1, :1])
        assert torch.equal(scaled.rgb01, batch.rgb01)


def test_a_cutout_paints_one_rectangle_of_rgb_in_the_mean_colour(batch):
    cut = Augmentation(cutout=0.5)(batch, 3, 0)
    for name in ("zoe_m", "depth_m", "objects"):
        assert torch.equal(getattr(cut, name), getattr(batch, name))
    counts = []
    for before, after in zip(batch.rgb01, cut.rgb01, strict=True):
        changed = (before != after).any(0)
        rows, columns = changed.any(1).sum(), changed.any(0).sum()
        assert changed.sum() >= 0.9 * rows * columns  # a pixel may have the mean colour already
        mean = before.mean((1, 2))[:, None].expand(-1, int(changed.sum()))
        torch.testing.assert_close(after[:, changed], mean)
        assert rows <= 0.65 * 24
        assert columns <= 0.65 * 32
        counts.append(int(changed.sum()))
    assert 0 < sum(count > 0 for count in counts) < len(counts)


def test_colour_changes_are_brightness_then_contrast_then_saturation(batch):
    colored = Augmentation(color=0.1)(batch, 7, 3)
    shares = 1 + 0.1 * (2 * uniform_numbers(batch.index.numpy(), 7, 3, DRAWS)[:, 1:4] - 1)
    for (brightness, contrast, saturation), before, after in zip(
        shares, batch.rgb01.numpy(), colored.rgb01.numpy(), strict=True
    ):
        rgb = before * brightness
        rgb = rgb.mean() + (rgb - rgb.mean()) * contrast
        rgb = rgb.mean(0) + (rgb - rgb.mean(0)) * saturation
        np.testing.assert_allclose(after, rgb.clip(0, 1), atol=1e-6)
    assert colored.rgb01.is_contiguous(memory_format=torch.channels_last)


def test_a_crop_enlarges_one_window_of_all_fields_and_interpolates_no_depth(batch):
    cropped = Augmentation(crop=0.5)(batch, seed=0, epoch=0)
    for name in ("zoe_m", "depth_m", "objects"):
        for before, after in zip(getattr(batch, name), getattr(cropped, name), strict=True):
            assert set(after.unique().tolist()) <= set(before.unique().tolist()), name
    assert not torch.equal(cropped.depth_m, batch.depth_m)
    assert cropped.rgb01.shape == batch.rgb01.shape
    # With its column as every field's value, a pixel shows which window each field got.
    ramp = torch.linspace(0, 1, 32).expand(len(batch.index), 1, 24, 32).contiguous()
    place = type(batch)(ramp.expand(-1, 3, -1, -1), ramp, ramp, batch.objects, batch.index)
    moved = Augmentation(crop=0.5)(place, seed=0, epoch=0)
    torch.testing.assert_close(moved.rgb01[:, :1], moved.zoe_m, atol=0.03, rtol=0)
    assert torch.equal(moved.zoe_m, moved.depth_m)
    assert (moved.zoe_m.amax((1, 2, 3)) - moved.zoe_m.amin((1, 2, 3)) > 0.45).all()


@pytest.mark.parametrize("size", [(12, 16), (10, 20), (48, 64)])
def test_resized_batches_have_no_depth_from_invalid_pixels(packed, size):
    plain, resized = (next(iter(prefetcher(packed, size=to))) for to in (None, size))
    assert resized.rgb01.shape[2:] == resized.objects.shape[2:] == size
    for before, after in zip(plain.depth_m, resized.depth_m, strict=True):
        valid = after[after > 0]
        assert valid.min() >= before[before > 0].min() - 1e-6
        assert valid.max() <= before.max() + 1e-6
    if size == (12, 16):
        blocks = plain.depth_m.unflatten(3, (16, 2)).unflatten(2, (12, 2))
        valid = (blocks > 0).sum((3, 5))
        mean = blocks.sum((3, 5)) / valid.clamp(min=1)
        expected = torch.where(valid >= 2, mean, 0)
        torch.testing.assert_close(resized.depth_m, expected)


def test_random_numbers_are_uniform_and_differ_between_frames():
    draws = uniform_numbers(np.arange(20_000), seed=3, epoch=7, count=DRAWS)
    assert len(np.unique(draws[:, 0])) > 19_900
    np.testing.assert_allclose(draws.mean(0), 0.5, atol=0.01)
    np.testing.assert_allclose(draws.std(0), 12**-0.5, atol=0.01)
    assert np.abs(np.corrcoef(draws.T) - np.eye(draws.shape[1])).max() < 0.04
    assert np.abs(np.corrcoef(draws[1:, 0], draws[:-1, 0])[0, 1]) < 0.04


def test_the_tier_is_printed_with_its_reason(packed, capsys):
    for tier, words in (("auto", "mapped from"), ("ram", "into memory"), ("device", "on cpu")):
        place_records(packed, tier, CPU)
        assert words in capsys.readouterr().err


def test_workers_that_share_a_gpu_divide_its_memory(packed, capsys, monkeypatch):
    """A GPU with room for seven times the records; workers may take half of it together."""
    monkeypatch.setattr(tiers, "free_memory_on", lambda device: 7 * packed.nbytes)
    monkeypatch.setattr(tiers, "DeviceRecords", lambda packed, device: packed.records)
    monkeypatch.delenv(GPU_WORKERS, raising=False)
    found = []
    for share in (0, 1, 0.5, 0.3, 0.25, 2):  # of a GPU, as a job on Ray reserves it
        use_reserved_gpus(os.environ, share)
        place_records(packed, "auto", torch.device("cuda", 0))
        found.append("on cuda:0" in capsys.readouterr().err)
    assert found == [True, True, True, True, False, True]


@pytest.mark.parametrize("order", sorted(ORDERS))
def test_ranks_share_each_batch_and_lose_no_sample(packed, order):
    whole = indices(loader(packed, 4, order=order))
    for world_size in (2, 3):
        ranks = [
            loader(packed, 4, order=order, rank=r, world=world_size) for r in range(world_size)
        ]
        parts = [indices(rank) for rank in ranks]
        assert len({len(part) for part in parts}) == 1
        assert [sorted(flat(part)) for part in zip(*parts, strict=True)] == list(map(sorted, whole))
