"""The writer of a stream: nothing overtakes what is about to be written."""

import asyncio

from halogend.api.sse import _Writer


async def test_text_that_comes_does_not_overtake_who_waits_to_write():
    """Not even in the moment in which one has written and the next has not been woken yet."""
    written, tries = [], []
    loop = asyncio.get_running_loop()

    async def send(message):
        if message["type"] == "http.response.body":
            written.append(message["body"])
            await asyncio.sleep(0)
            if len(tries) < 2:  # before whoever waits hears that it is its turn
                loop.call_soon(lambda: tries.append(writer.write_now([{"late": len(tries)}])))

    writer = _Writer(send, {}, lambda: False, lambda data: written.append(data) is None)
    await asyncio.gather(*(writer.write([{"number": number}]) for number in range(3)))
    assert tries == [False] * 2
    assert written == [b'data: {"number":%d}\n\n' % number for number in range(3)]
    assert writer.write_now([{"number": 3}])
    assert written[3:] == [b'data: {"number":3}\n\n']
    left = _Writer(send, {}, lambda: True, lambda data: written.append(data) is None)
    assert not left.write_now([{"number": 4}])
