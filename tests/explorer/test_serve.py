"""The served explorer: who may ask, what is refused, and that it answers as the engine does."""

import http.client
import itertools
import json
import random
import threading
import time

import jax.numpy as jnp
import numpy as np
import pytest

import undirected as un
from tests.explorer.test_page import TABLE, table_model
from undirected.core.errors import UndirectedError
from undirected.explorer.serve import MOST_BYTES, Engine, Served
from undirected.explorer.serve_network import BadQuestion, NetworkEngine, known_states
from undirected.io.uai import UaiModel, write_uai


def picture_model():
    rng = np.random.default_rng(0)
    arrays = rng.normal(0, 0.7, (6, 3)), rng.normal(0, 0.5, 6), rng.normal(0, 0.5, 3)
    return un.RBM(*(jnp.asarray(a, jnp.float32) for a in arrays))


@pytest.fixture(scope="module")
def served():
    found = Served(picture_model(), rows=np.eye(6)[:2], image=(2, 3))
    thread = threading.Thread(target=found.run, daemon=True)
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
    body = bytearray(question(rng.choice(["bp", "mf", "gibbs", "solve", "exec", ""])))
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


@pytest.mark.parametrize("kind", ["served", pytest.param("network", marks=pytest.mark.slow)])
def test_a_thousand_broken_questions_do_no_harm(kind, request, monkeypatch):
    """The engine is not run: whatever reaches it is a well-formed question."""
    served, reached = request.getfixturevalue(kind), []
    monkeypatch.setattr(served, "engine", lambda *asked: reached.append(asked) or {})
    rng, statuses = random.Random(0), set()
    for number in range(1000):
        body = b"[" * 100_000 if number == 0 else mutated(rng)
        status, _ = ask(served, "POST", "/answer", body)
        statuses.add(status)
    assert statuses == {200, 400}
    for method, visible in reached:
        assert method in served.methods and isinstance(visible, list)
    monkeypatch.undo()
    fine = question() if kind == "served" else states()
    assert ask(served, "POST", "/answer", fine)[0] == 200


def test_values_of_a_thousand_questions_reach_no_engine(network):
    """Well-formed questions with values that are none: all are refused before anything is run."""
    rng = random.Random(1)
    counts = network.engine.network.cardinalities
    odd = ["1", 1.5, True, [], {}, -1, 9, 10**400, "__import__('os')", "/etc/passwd", "\x00"]
    for _ in range(1000):
        visible = [None] * len(counts)
        visible[rng.randrange(len(counts))] = rng.choice(odd)
        with pytest.raises(BadQuestion):
            known_states(counts, visible)


def test_what_is_neither_layered_nor_discrete_is_not_served():
    with pytest.raises(UndirectedError, match="discrete variables, not a NonnegativeBM"):
        Served(un.NonnegativeBM.from_matrix(np.eye(2), np.ones(2)))


COUNTS = (*[2] * 400, 3)
"""Of a chain of more variables than a page draws."""


def chain():
    rng = np.random.default_rng(0)
    return [np.exp(rng.normal(0, 1, pair)) for pair in itertools.pairwise(COUNTS)]


def forward_backward(tables, given):
    """Marginals and log Z of a chain, by sums from both ends."""
    seen = [np.eye(k)[given[v]] if v in given else np.ones(k) for v, k in enumerate(COUNTS)]
    left, right, log_z = [seen[0]], [np.ones(COUNTS[-1])], 0.0
    for table, mask in zip(tables, seen[1:], strict=True):
        message = (left[-1] @ table) * mask
        log_z += np.log(message.sum())
        left.append(message / message.sum())
    for table, mask in zip(tables[::-1], seen[:0:-1], strict=True):
        message = table @ (right[-1] * mask)
        right.append(message / message.sum())
    both = [a * b for a, b in zip(left, right[::-1], strict=True)]
    return [p / p.sum() for p in both], log_z


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    path = tmp_path_factory.mktemp("network") / "chain.uai"
    write_uai(path, UaiModel(COUNTS, tuple((v, v + 1) for v in range(400)), tuple(chain())))
    with pytest.raises(UndirectedError, match="401 variables"):
        un.explore(path)
    found = Served(path)
    thread = threading.Thread(target=found.run, daemon=True)
    thread.start()
    yield found
    found.stop()
    thread.join(10)
    assert not thread.is_alive()


def states(**known):
    visible = [None] * 401
    for v, state in known.items():
        visible[int(v[1:])] = state
    return question("solve", visible)


def test_a_network_that_no_page_holds_is_answered_by_the_engine(network):
    status, page = ask(network, "GET", f"/?token={network.token}")
    assert status == 200 and '"form":"asked"' in page and '"view":"asked"' in page
    status, text = ask(network, "POST", "/answer", states(v1=1, v400=2))
    found = json.loads(text)
    marginals, log_z = forward_backward(chain(), {1: 1, 400: 2})
    assert status == 200 and found["exact"] is True
    for got, expected in zip(found["marginals"], marginals, strict=True):
        np.testing.assert_allclose(got, expected, atol=1e-5)
    assert found["logZ"] == pytest.approx(log_z, abs=1e-4)


@pytest.mark.parametrize(
    "first",
    [2, -1, 0.5, 1.0, "1", True, [1], float("nan"), {}],
    ids=["two", "less", "half", "float", "word", "true", "list", "nan", "object"],
)
def test_states_that_are_none_are_refused(network, first):
    assert ask(network, "POST", "/answer", states(v0=first))[0] == 400
    assert ask(network, "POST", "/answer", question("solve", [1]))[0] == 400
    assert ask(network, "POST", "/answer", question("bp", [None] * 401))[0] == 400


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"Host": "evil.example"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"X_Token": "x" * 32}, 403),
        ({"Content_Length": str(MOST_BYTES + 1)}, 413),
    ],
)
def test_a_network_is_guarded_as_models_are(network, change, status):
    assert ask(network, "POST", "/answer", states(), **change)[0] == status


def test_an_impossible_state_is_said_to_be_one():
    table = np.array([[1.0, 0.0], [0.0, 1.0]])
    model = un.markov_network([2, 2], {(0, 1): table})
    with pytest.raises(UndirectedError, match="inconsistent"):
        NetworkEngine(model.lower())("solve", [0, 1])


def test_of_questions_that_wait_the_newest_is_answered():
    engine = NetworkEngine(un.markov_network([2], {(0,): [1, 3]}).lower())
    outcomes = []

    def put(value):
        try:
            outcomes.append(engine("solve", [value])["marginals"][0])
        except BadQuestion as error:
            outcomes.append(str(error))

    threads = [threading.Thread(target=put, args=(value,)) for value in (0, 1)]
    with engine._one_at_a_time:  # as if an answer were being worked at
        for number, thread in enumerate(threads):
            thread.start()
            while engine._asked <= number:
                time.sleep(0.001)
    for thread in threads:
        thread.join(10)
    assert sorted(outcomes, key=str) == [[0, 1], "a newer question took the place of this one"]
