"""Sampling on the device, without a sort: where in the order of falling logits a share of the weight is reached is
found by bisection over logits.

    survey   a row's largest logit, the weight of all its tokens, and of those that min-p leaves; then the ids of the
             tokens that can matter, ascending, into scratch: few nearly always, all if need be
    choose   of these: what top-k leaves of the weight, what top-p leaves of that, and where the number falls

    weight   exp((logit - largest) / temperature) as a whole number of 2^-42: sums are exact, whatever their order, so
             that a row's token depends on nothing but the row. What rounds to nothing is never drawn
    key      a float's bits as an integer with the floats' order, one for both zeros

All sets (top-k, top-p, min-p) are beginnings of one order, so that each is known by its weight, and the least counts.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from halogen_kernels.sampling import GREEDY_BELOW, NO_TOKEN
from halogen_kernels.triton import tuning
from halogen_kernels.triton.hints import aligned, sixteens
from halogen_kernels.triton.launching import launch
from halogen_kernels.triton.shapes import Shapes
from halogen_kernels.values import Workspace

OP = "sample"
MOST_TOKENS = 1 << 20  # so that their weights' sum is at most 2^62

_UNIT = tl.constexpr(float(1 << 42))
_LARGEST = tl.constexpr(3.4028234663852886e38)
_GREEDY_BELOW = tl.constexpr(GREEDY_BELOW)
_NO_TOKEN = tl.constexpr(NO_TOKEN)
# In temperatures below the largest logit: tokens down to the first depth that is deep enough are looked at.
_SHALLOW = tl.constexpr(6.0)
_DEEP = tl.constexpr(14.0)
# A row of `state`: how many ids there are in scratch, the weight of all tokens and of those that min-p leaves, the
# keys of the largest logit and of the least in scratch.
_FIELDS = tl.constexpr(5)


@triton.jit
def _key(x):
    bits = tl.where(x == 0, 0.0, x).to(tl.int32, bitcast=True)
    return tl.where(bits >= 0, bits, bits ^ 0x7FFFFFFF)


@triton.jit
def _weight(x, inside, largest, scale):
    """int64, in units of 2^-42; 0 outside."""
    depth = (tl.where(inside, x, largest) - largest) * scale
    return tl.where(inside, tl.exp(depth) * _UNIT + 0.5, 0.0).to(tl.int64)


@triton.jit
def _scale(temperature):
    """What a depth is multiplied with. Where the largest is taken, all weigh the same."""
    return tl.where(temperature < _GREEDY_BELOW, 0.0, 1.0 / tl.maximum(temperature, _GREEDY_BELOW)).to(tl.float32)


@triton.jit
def _beyond(share):
    """What a running sum must exceed to be at least `share`."""
    whole = share.to(tl.int64)
    return tl.where(whole == share, whole - 1, whole)


@triton.jit
def _largest(logits, vocab, BLOCK: tl.constexpr):
    """Of a row, and whether all of it is finite."""
    lane = tl.arange(0, BLOCK)
    finite = tl.full([BLOCK], 1, tl.int32)
    most = tl.full([BLOCK], -_LARGEST, tl.float32)
    for first in range(0, vocab, BLOCK):
        x = tl.load(logits + first + lane, mask=first + lane < vocab, other=-_LARGEST)
        finite = tl.where(tl.abs(x) <= _LARGEST, finite, 0)
        most = tl.maximum(most, x)
    sound = tl.min(finite, 0) == 1
    return tl.where(sound, tl.max(most, 0), 0.0), sound


@triton.jit
def _gather(logits, ids, vocab, least, sound, BLOCK: tl.constexpr):
    """Writes the ids of logits from `least` on, ascending; how many there are."""
    lane = tl.arange(0, BLOCK)
    count = tl.zeros([], tl.int32)
    for first in range(0, vocab, BLOCK):
        inside = (first + lane < vocab) & sound
        x = tl.load(logits + first + lane, mask=inside, other=-_LARGEST)
        taken = (inside & (x >= least)).to(tl.int32)
        place = count + tl.cumsum(taken, 0) - 1
        tl.store(ids + place, first + lane, mask=taken != 0)
        count += tl.sum(taken, 0)
    return count


@triton.jit(do_not_specialize=["vocab", "stride"])
def survey_kernel(logits, rules, ids, state, vocab, stride, ALIGNED: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    vocab = sixteens(vocab, ALIGNED)
    logits += row * sixteens(stride, ALIGNED)
    ids += row * vocab
    state += row * _FIELDS
    rules += row * 5
    lane = tl.arange(0, BLOCK)

    largest, sound = _largest(logits, vocab, BLOCK)
    temperature = tl.load(rules)
    greedy = temperature < _GREEDY_BELOW
    scale = _scale(temperature)
    least_weight = (tl.load(rules + 3) * _UNIT).to(tl.int64)
    shallow = tl.maximum(largest - (temperature * _SHALLOW).to(tl.float32), -_LARGEST)
    deep = tl.maximum(largest - (temperature * _DEEP).to(tl.float32), -_LARGEST)

    sums = tl.zeros([BLOCK], tl.int64)
    likely_sums = tl.zeros([BLOCK], tl.int64)
    shallow_sums = tl.zeros([BLOCK], tl.int64)
    deep_sums = tl.zeros([BLOCK], tl.int64)
    shallow_counts = tl.zeros([BLOCK], tl.int32)
    deep_counts = tl.zeros([BLOCK], tl.int32)
    for first in range(0, vocab, BLOCK):
        inside = (first + lane < vocab) & sound
        x = tl.load(logits + first + lane, mask=inside, other=-_LARGEST)
        weight = _weight(x, inside, largest, scale)
        in_shallow, in_deep = inside & (x >= shallow), inside & (x >= deep)
        sums += weight
        likely_sums += tl.where(weight >= least_weight, weight, 0)
        shallow_sums += tl.where(in_shallow, weight, 0)
        deep_sums += tl.where(in_deep, weight, 0)
        shallow_counts += in_shallow.to(tl.int32)
        deep_counts += in_deep.to(tl.int32)
    total, likely = tl.sum(sums, 0), tl.sum(likely_sums, 0)

    # What the running weight must exceed, and how many tokens there must be, for no other token to matter.
    top_k = tl.minimum(tl.load(rules + 1), vocab).to(tl.int64)
    top_p = tl.load(rules + 2)
    drawn = tl.minimum((tl.load(rules + 4) * tl.minimum(total, likely)).to(tl.int64), total - 1)
    share = tl.where(top_k > 0, -1, tl.where(top_p < 1, _beyond(top_p * total), drawn))
    enough_shallow = (tl.sum(shallow_sums, 0) > share) & (tl.sum(shallow_counts, 0) >= top_k)
    enough_deep = (tl.sum(deep_sums, 0) > share) & (tl.sum(deep_counts, 0) >= top_k)
    least = tl.where(enough_shallow, shallow, tl.where(enough_deep, deep, -_LARGEST))
    least = tl.where(greedy, largest, least)

    count = _gather(logits, ids, vocab, least, sound, BLOCK)
    tl.store(state, count.to(tl.int64))
    tl.store(state + 1, total)
    tl.store(state + 2, likely)
    tl.store(state + 3, _key(largest).to(tl.int64))
    tl.store(state + 4, _key(least).to(tl.int64))


@triton.jit
def _reach(logits, ids, count, lowest, highest, beyond, largest, scale, COUNTED: tl.constexpr, BLOCK: tl.constexpr):
    """The key at which the running weight (the running number, if COUNTED) in falling order first exceeds `beyond`;
    the weight and the number of the tokens above it; the weight of one token at it, for all there have the same."""
    lane = tl.arange(0, BLOCK)
    low, high = lowest - 1, highest + 1  # from the key `low` on it exceeds, from `high` on it does not
    while high - low > 1:
        middle = low + (high - low) // 2
        found = tl.full([BLOCK], 0, tl.int64)
        for first in range(0, count, BLOCK):
            inside = first + lane < count
            x = tl.load(logits + tl.load(ids + first + lane, mask=inside, other=0), mask=inside, other=-_LARGEST)
            # `_key` and `_weight`, written out: calls are what takes longest in the interpreter.
            bits = tl.where(x == 0, 0.0, x).to(tl.int32, bitcast=True)
            taken = inside & (tl.where(bits >= 0, bits, bits ^ 0x7FFFFFFF) >= middle)
            if COUNTED:
                found += taken.to(tl.int64)
            else:
                depth = (tl.where(taken, x, largest) - largest) * scale
                found += tl.where(taken, tl.exp(depth) * _UNIT + 0.5, 0.0).to(tl.int64)
        exceeds = tl.sum(found, 0) > beyond
        low = tl.where(exceeds, middle, low)
        high = tl.where(exceeds, high, middle)

    above = tl.full([BLOCK], 0, tl.int64)
    at = tl.full([BLOCK], 0, tl.int64)
    number_above = tl.full([BLOCK], 0, tl.int32)
    for first in range(0, count, BLOCK):
        inside = first + lane < count
        x = tl.load(logits + tl.load(ids + first + lane, mask=inside, other=0), mask=inside, other=-_LARGEST)
        key = _key(x)
        weight = _weight(x, inside, largest, scale)
        above += tl.where(key > low, weight, 0)
        at = tl.maximum(at, tl.where(key == low, weight, 0))
        number_above += (inside & (key > low)).to(tl.int32)
    each = tl.maximum(tl.max(at, 0), 1)
    return low, tl.sum(above, 0), tl.sum(number_above, 0), each


@triton.jit
def _nth(logits, ids, count, key, wanted, BLOCK: tl.constexpr):
    """The id of number `wanted`, from 0, of the tokens whose key is `key`."""
    lane = tl.arange(0, BLOCK)
    seen = tl.zeros([], tl.int64)
    found = tl.zeros([], tl.int64)
    for first in range(0, count, BLOCK):
        inside = first + lane < count
        id_ = tl.load(ids + first + lane, mask=inside, other=0)
        x = tl.load(logits + id_, mask=inside, other=-_LARGEST)
        here = (inside & (_key(x) == key)).to(tl.int64)
        number = seen + tl.cumsum(here, 0) - 1
        found += tl.sum(tl.where((here != 0) & (number == wanted), id_, 0).to(tl.int64), 0)
        seen += tl.sum(here, 0)
    return found


@triton.jit(do_not_specialize=["vocab", "stride"])
def choose_kernel(logits, rules, ids, state, tokens, vocab, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    logits += row * stride
    ids += row * vocab
    state += row * _FIELDS
    rules += row * 5
    count = tl.load(state).to(tl.int32)
    total, likely = tl.load(state + 1), tl.load(state + 2)
    highest, lowest = tl.load(state + 3), tl.load(state + 4)
    bits = tl.where(highest >= 0, highest, highest ^ 0x7FFFFFFF).to(tl.int32)
    largest = bits.to(tl.float32, bitcast=True)
    temperature = tl.load(rules)
    scale = _scale(temperature)
    drawing = (temperature >= _GREEDY_BELOW) & (count > 0)
    top_k = tl.where(drawing, tl.minimum(tl.load(rules + 1), vocab), 0.0).to(tl.int64)
    top_p = tl.where(drawing, tl.load(rules + 2), 1.0)
    number = tl.where(drawing, tl.load(rules + 4), 0.0)

    if top_k > 0:
        _, above, number_above, each = _reach(
            logits, ids, count, lowest, highest, top_k - 1, largest, scale, True, BLOCK
        )
        total = above + (top_k - number_above) * each
    if top_p < 1:
        kept = _beyond(top_p * total)
        _, above, number_above, each = _reach(logits, ids, count, lowest, highest, kept, largest, scale, False, BLOCK)
        total = above + ((kept - above) // each + 1) * each
    total = tl.where(drawing, tl.minimum(total, likely), total)
    beyond = tl.minimum((number * total).to(tl.int64), total - 1)
    token = tl.full([], _NO_TOKEN, tl.int64)
    if count > 0:
        key, above, number_above, each = _reach(
            logits, ids, count, lowest, highest, beyond, largest, scale, False, BLOCK
        )
        token = _nth(logits, ids, count, key, (beyond - above) // each, BLOCK)
    tl.store(tokens + row, token)


def sample(logits: Tensor, rules: Tensor, out: Tensor | None = None, workspace: Workspace | None = None) -> Tensor:
    """The tokens of float32 `logits` [rows, vocab] by `rules` float64 [rows, 5], as `sampling.rules` writes them and
    on the logits' device: int64 [rows], in `out` if that is given; NO_TOKEN for a row that is not finite. Takes four
    bytes a logit of scratch, from `workspace` if that is given. Raises ValueError for more than MOST_TOKENS."""
    rows, vocab = logits.shape
    if vocab > MOST_TOKENS:
        raise ValueError(f"a vocabulary of {vocab} is more than the {MOST_TOKENS} whose weights can be summed")
    tokens = logits.new_empty(rows, dtype=torch.int64) if out is None else out
    scratch = workspace or Workspace(logits.device)
    ids = scratch.take("sample.ids", (rows, vocab), torch.int32)
    state = scratch.take("sample.state", (rows, 5), torch.int64)
    numbers, even = (vocab, logits.stride(0)), aligned(vocab, logits.stride(0))
    blocks = tuning.pick(OP, step="survey", vocab=vocab)
    launch(survey_kernel, (rows,), logits, rules, ids, state, *numbers, ALIGNED=even, **blocks)
    launch(
        choose_kernel,
        (rows,),
        logits,
        rules,
        ids,
        state,
        tokens,
        *numbers,
        **tuning.pick(OP, step="choose", vocab=vocab),
    )
    return tokens


def rehearse(shapes: Shapes) -> None:
    """Nothing that `shapes` can say changes the kernels."""
    del shapes
    for vocab in (160, 161):
        sample(torch.empty(2, vocab, device="meta"), torch.empty(2, 5, dtype=torch.float64, device="meta"))
