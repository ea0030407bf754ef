"""The served explorer: who may ask, what is refused, and that it answers as the engine does."""

import http.client
import json
import random
import threading

import jax.numpy as jnp
import numpy as np
import pytest

import undirected as un
from tests.explorer.test_page import TABLE, table_model
from undirected.core.errors import UndirectedError
from undirected.explorer.serve import MOST_BYTES, Engine, Served


def picture_model():
    rng = np.random.default_rng(0)
    arrays = rng.normal(0, 0.7, (6, 3)), rng.normal(0, 0.5, 6), rng.normal(0, 0.5, 3)
    return un.RBM(*(jnp.asarray(a, jnp.float32) for a in arrays))


@pytest.fixture(scope="module")
def served():
    found = Served(picture_model(), rows=np.eye(6)[:2], image=(2, 3))
    thread = threading.Thread(target=found.run)
    thread.start()
    yield found
    found.stop()
    thread.join(10)
    assert not thread.is_alive()  # a clean stop
    with pytest.raises(OSError, match="refused|reset"):
        ask(found, "GET", "/")


def ask(served, verb, path, body=None, **headers):
    """Status and text of an answer; headers of None are left out."""
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=10)
    own = {"Host": f"127.0.0.1:{served.port}"}
    if verb == "POST":
        own |= {"Origin": f"http://127.0.0.1:{served.port}", "X-Token": served.token}
        own |= {"Content-Length": str(len(body or b""))}
    own |= {name.replace("_", "-"): value for name, value in headers.items()}
    connection.putrequest(verb, path, skip_host=True, skip_accept_encoding=True)
    for name, value in own.items():
        if value is not None:
            connection.putheader(name, value)
    connection.endheaders(body)
    response = connection.getresponse()
    text = response.read().decode("utf-8")
    connection.close()
    return response.status, text


def question(method="bp", visible=(1, None, None, 0, None, None)):
    return json.dumps({"method": method, "visible": list(visible)}).encode()


def test_the_page_comes_with_the_token_and_without_the_weights(served):
    status, page = ask(served, "GET", f"/?token={served.token}")
    told = page.split('id="payload">')[1].split("</script>")[0]
    assert status == 200 and '"form":"remote"' in told and '"weights"' not in told
    assert "connect-src &#39;self&#39;" in page
    assert served.token not in page  # it stays in the address


@pytest.mark.parametrize("method", ["bp", "mf"])
def test_answers_are_those_of_the_engine(served, method):
    status, text = ask(served, "POST", "/answer", question(method))
    row = [[1, np.nan, np.nan, 0, np.nan, np.nan]]
    assert status == 200
    expected = un.query(picture_model(), row, method=method)[0]
    np.testing.assert_allclose(json.loads(text)["mean"], expected, atol=1e-6)


@pytest.mark.slow
def test_columns_of_every_kind_are_answered():
    model = table_model()
    engine = Engine(model.model)
    answer = engine("bp", [1, None, 0.2, None])  # in the order of the units: wet, sky, felt, mm
    assert len(answer["mean"]) == model.model.n_visible
    assert answer["mean"][0] == 1 and answer["variance"][0] == 0
    assert sum(answer["mean"][1:4]) == pytest.approx(1, abs=1e-5)
    assert set(TABLE) == set(model.schema.names)


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"Host": "evil.example"}, 403),
        ({"Host": "127.0.0.1.evil.example:80"}, 403),
        ({"Host": None}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": None}, 403),
        ({"Sec_Fetch_Site": "cross-site"}, 403),
        ({"X_Token": "x" * 32}, 403),
        ({"X_Token": None}, 403),
        ({"X_Token": ""}, 403),
        ({"Content_Length": None}, 411),
        ({"Content_Length": "-1"}, 411),
        ({"Content_Length": "ten"}, 411),
        ({"Content_Length": str(MOST_BYTES + 1)}, 413),
    ],
)
def test_others_are_refused(served, change, status):
    assert ask(served, "POST", "/answer", question(), **change)[0] == status


@pytest.mark.parametrize(
    "path", ["/", "/?token=wrong", "/../../etc/passwd", "/answer", "/model.json", "//", "/%2e%2e/"]
)
def test_nothing_but_the_page_is_given(served, path):
    assert ask(served, "GET", path)[0] in (403, 404)
    assert ask(served, "POST", path if path != "/answer" else "/other", b"{}")[0] == 404


@pytest.mark.parametrize("verb", ["PUT", "DELETE", "OPTIONS", "HEAD", "TRACE"])
def test_other_verbs_are_refused(served, verb):
    assert ask(served, verb, "/")[0] == 501


@pytest.mark.parametrize(
    "first",
    [2, 0.5, "1", True, [1], 1e300, float("nan"), float("inf"), {}],
    ids=["two", "half", "word", "true", "list", "large", "nan", "infinite", "object"],
)
def test_values_that_are_none_are_refused(served, first):
    assert ask(served, "POST", "/answer", question(visible=[first, *[None] * 5]))[0] == 400
    assert ask(served, "POST", "/answer", question(visible=[1]))[0] == 400


def mutated(rng):
    """A question with some bytes changed, cut off, doubled or replaced by others."""
    body = bytearray(question(rng.choice(["bp", "mf", "gibbs", "exec", ""])))
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(body)) if body else 0
        kind = rng.randrange(4)
        if kind == 0 and body:
            body[at] = rng.randrange(256)
        elif kind == 1:
            body = body[:at]
        elif kind == 2:
            body[at:at] = rng.choice([b'"', b"{", b"[", b"\\", b"\x00", b"\xff", b"9" * 400, b"["])
        else:
            body += bytes(rng.randrange(256) for _ in range(rng.randrange(20)))
    return bytes(body)


def test_a_thousand_broken_questions_do_no_harm(served, monkeypatch):
    """The engine is not run: whatever reaches it is a well-formed question."""
    reached = []
    monkeypatch.setattr(served, "engine", lambda *asked: reached.append(asked) or {})
    rng, statuses = random.Random(0), set()
    for number in range(1000):
        body = b"[" * 100_000 if number == 0 else mutated(rng)
        status, _ = ask(served, "POST", "/answer", body)
        statuses.add(status)
    assert statuses <= {200, 400} and 400 in statuses
    for method, visible in reached:
        assert method in ("bp", "mf", "gibbs") and isinstance(visible, list)
    monkeypatch.undo()
    assert ask(served, "POST", "/answer", question())[0] == 200


def test_a_network_is_not_served():
    with pytest.raises(UndirectedError, match="one layer of hidden units"):
        Served(un.Ising.create(3))
