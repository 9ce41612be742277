import pytest, time
from tests.integration.test_verify_agrees import events_that_differ
@pytest.mark.parametrize("kind", ["json", "connect", "avro"])
def test_more(engine, kind):
    end = time.time() + 40
    seed = 0
    with open(f"/tmp/vt/hist_{kind}.txt", "w") as out:
        while time.time() < end:
            found = events_that_differ(engine, kind, seed)
            out.write("\n".join([f"seed {seed}", *found]) + "\n"); out.flush()
            seed += 1
