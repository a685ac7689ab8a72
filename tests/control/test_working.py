"""The estimate of what a replica takes beside weights and KV memory follows what the kernels keep."""

from dataclasses import replace

from halogen_kernels.cpu.row_sizes import padded_rows
from support.imagined import GEOMETRY

from halogend.config.schema import ModelConfig
from halogend.control import working
from halogend.control.working import Work, working_bytes

WORK = Work(kv_dtype="bf16", step_tokens=512, has_template=False, keeps_products=True)
SMALL, LARGE = 256, 257  # a feed-forward's width, of matrices with 128 columns


def estimate(ffn: int, work: Work = WORK) -> int:
    return working_bytes(replace(GEOMETRY, hidden=128, ffn=ffn), ModelConfig(name="m", model="m"), work)


def test_small_matrices_are_counted_with_the_few_sizes_that_their_products_run_with():
    sizes = {padded_rows(rows, working.SMALL_VALUES) for rows in range(1, WORK.step_tokens + 1)}
    assert len(sizes) == working.SMALL_SIZES
    larger = {padded_rows(rows, working.SMALL_VALUES + 1) for rows in range(1, WORK.step_tokens + 1)}
    assert working.SMALL_SIZES < working.LARGE_SIZES <= len(larger)


def test_the_three_products_of_a_feed_forward_are_counted_by_their_size():
    more = working.LARGE_SIZES - working.SMALL_SIZES
    difference = estimate(LARGE) - estimate(SMALL)
    assert abs(difference - 3 * more * working.PRODUCT_BYTES) <= 1


def test_quantised_weights_keep_no_products():
    kept = estimate(SMALL) - estimate(SMALL, replace(WORK, keeps_products=False))
    assert abs(kept - 5 * working.SMALL_SIZES * working.PRODUCT_BYTES) <= 1
