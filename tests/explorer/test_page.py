"""What the page is told of a model, and the file it becomes."""

import base64
import hashlib
import json
import re
import sys

import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

import undirected as un
from undirected.cli.app import app
from undirected.core.errors import UndirectedError
from undirected.explorer import views
from undirected.explorer.page import bundle
from undirected.io.snapshots import Snapshots
from undirected.io.uai import UaiModel, write_uai

TABLE = {
    "sky": ["clear", "grey", "dark"] * 8,
    "wet": ["no", "no", "yes"] * 8,
    "mm": [0.0, 1.25, 9.5] * 8,
    "felt": [20.5, 12.0, 7.5] * 8,
}


def table_model():
    schema = un.infer_schema(TABLE, types={"felt": "real", "mm": "nonnegative"})
    return un.TableModel(un.MixedRBM.create(schema, 3, seed=0, scale=0.5), schema)


def payload_in(html):
    text = re.search(r'<script type="application/json" id="payload">(.*?)</script>', html, re.S)
    assert text is not None
    return json.loads(text[1])


def test_the_file_names_its_one_script_and_style_by_their_hashes():
    html = un.explore(un.RBM.create(4, 2, seed=0), image=(2, 2), title="A <b>title</b> & more").html
    script = re.search(r'<script type="module">(.*?)</script>', html, re.S)
    style = re.search(r"<style>(.*?)</style>", html, re.S)
    policy = re.search(r'Content-Security-Policy" content="(.*?)"', html)
    assert script and style and policy
    for kind, text in (("script", script[1]), ("style", style[1])):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy[1].replace("&#39;", "'")
    assert "default-src 'none'" in policy[1].replace("&#39;", "'")
    assert "A &lt;b&gt;title&lt;/b&gt; &amp; more" in html
    assert payload_in(html)["title"] == "A <b>title</b> & more"


def test_the_file_asks_for_nothing_elsewhere():
    html = un.explore(un.RBM.create(4, 2, seed=0), image=(2, 2)).html
    for address in re.findall(r"https?://[^\s\"'<>]+", html):
        assert address == "http://www.w3.org/2000/svg"  # a name, not an address
    # WebAssembly that the script itself puts together is allowed, text that is run as code is not.
    html = html.replace("&#39;wasm-unsafe-eval&#39;", "").replace("'wasm-unsafe-eval'", "")
    assert not re.search(r"\b(XMLHttpRequest|WebSocket|eval|innerHTML|importScripts)\b", html)
    assert re.findall(r"fetch\((.*?),", html) == ['"/answer"']  # of a page that is served
    assert "connect-src &#39;none&#39;" in html


def test_the_modules_are_joined_without_their_imports():
    text = bundle()
    assert not re.search(r"^(import|export) ", text, re.M)
    names = re.findall(r"^(?:async )?(?:function|class|const|let) (\w+)", text, re.M)
    assert len(names) == len(set(names))


def test_words_cannot_leave_their_script_element():
    names = ["</script><script>alert(1)</script>", "<!--", "\u2028"]
    schema = un.Schema(tuple(un.Column(name, "binary", ("0", "1")) for name in names))
    html = un.explore(un.TableModel(un.RBM.create(3, 2, seed=0), schema)).html
    assert html.count("</script>") == 2
    assert [c["name"] for c in payload_in(html)["columns"]] == names


def test_weights_come_back_to_the_bit():
    model = un.RBM.create(6, 3, seed=1, scale=1.0)
    told = views.payload_of(model, image=(2, 3))["model"]
    got = np.frombuffer(base64.b64decode(told["weights"]["data"]), "<f4").reshape(6, 3)
    np.testing.assert_array_equal(got, np.asarray(model.weights))


def test_many_weights_are_halved_and_that_is_said(monkeypatch):
    monkeypatch.setattr("undirected.explorer.payload.HALVED", 10)
    payload = views.payload_of(un.RBM.create(6, 3, seed=1), image=(2, 3))
    assert payload["model"]["weights"]["dtype"] == "float16"
    assert "half precision" in payload["small"]


def test_columns_keep_their_words_and_their_places():
    model = table_model()
    payload = views.payload_of(model, rows={k: v[:3] for k, v in TABLE.items()})
    assert payload["view"] == "table"
    kinds = [v["kind"] for v in payload["model"]["variables"]]
    for column, own in zip(payload["columns"], model.schema, strict=True):
        assert column["name"] == own.name and column["states"] == list(own.states)
        assert kinds[column["variable"]] == own.kind
    assert payload["rows"][0] == [
        None if np.isnan(x) else pytest.approx(x, abs=1e-5)
        for x in model.schema.encode({k: v[:1] for k, v in TABLE.items()})[0].tolist()
    ]


def test_what_needs_no_names_gets_some():
    assert views.payload_of(un.RBM.create(5, 2, seed=0, label_states=3))["columns"][-1] == {
        "name": "x2",
        "kind": "category",
        "states": ["0", "1", "2"],
        "mean": 0.0,
        "scale": 1.0,
        "decimals": 6,
        "variable": 2,
    }
    ising = views.payload_of(un.Ising.create(4))
    assert ising["view"] == "network" and ising["model"]["cards"] == [2, 2, 2, 2]


def test_networks_have_the_names_of_their_user():
    net = un.markov_network(
        {"b": 2, "a": ["x", "y", "z"]}, {("a", "b"): np.arange(1.0, 7.0).reshape(3, 2)}
    )
    payload = views.payload_of(net)
    assert payload["view"] == "network"
    assert [c["name"] for c in payload["columns"]] == ["b", "a"]
    assert payload["columns"][1]["states"] == ["x", "y", "z"]
    assert payload["model"]["cards"] == [2, 3]


@pytest.mark.parametrize(
    ("make", "options", "complaint"),
    [
        (lambda: un.RBM.create(6, 2, seed=0), {"image": (2, 2)}, "4 pixels; the model has 6"),
        (lambda: un.RBM.create(6, 2, seed=0), {"rows": [[0, 1]]}, "one cell a column"),
        (lambda: un.Ising.create(301), {}, "301 variables"),
        (lambda: un.NonnegativeBM.from_matrix(np.eye(2), np.ones(2)), {}, "among themselves"),
    ],
    ids=["image", "rows", "large", "lines"],
)
def test_what_a_page_cannot_show_is_refused(make, options, complaint):
    with pytest.raises(UndirectedError, match=complaint):
        un.explore(make(), **options)


def test_notebooks_get_a_frame_that_may_only_run_scripts():
    shown = un.explore(un.RBM.create(4, 2, seed=0), image=(2, 2))._repr_html_()
    assert 'sandbox="allow-scripts"' in shown and "<script" not in shown.split("srcdoc=")[0]
    assert "&lt;script" in shown


def test_the_command_writes_the_page_of_a_folder(tmp_path):
    folder = tmp_path / "digits"
    un.save(folder, un.RBM.create(6, 2, seed=0), {"image": [2, 3], "means": [0.5] * 6})
    np.savetxt(tmp_path / "rows.csv", np.eye(6)[:2], "%d", ",")
    args = ["explore", str(folder), "--rows", str(tmp_path / "rows.csv"), "--no-open", "--json"]
    result = CliRunner().invoke(app, args)
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told["view"] == "image" and told["page"] == str(folder / "explore.html")
    payload = payload_in((folder / "explore.html").read_text("utf-8"))
    assert payload["image"] == [2, 3] and payload["rows"] == np.eye(6)[:2].tolist()


def test_the_measures_of_the_fit_come_along(tmp_path):
    un.save(tmp_path, un.RBM.create(6, 2, seed=0), {"image": [2, 3]})
    assert views.payload_of(tmp_path)["history"] == {}
    lines = [{"step": 10 * k, "epoch": k, "surrogate": -k / 4} for k in range(1000)]
    lines[3] |= {"surrogate": "NaN"}
    lines[5] |= {"validation": -2.0}
    lines[-1] |= {"validation": -1.0}
    (tmp_path / "training").mkdir()
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "training" / "metrics.jsonl").write_text(text, encoding="utf-8")
    history = views.payload_of(tmp_path)["history"]
    assert history["validation"] == [[50, -2.0], [9990, -1.0]]
    assert len(history["surrogate"]) == views.MOST_STEPS and "epoch" not in history
    assert history["surrogate"][0] == [0, 0.0] and history["surrogate"][-1] == [9990, -249.75]


def filmed(folder, model, image=None, last=60, notes=None):
    """A model folder as a fit leaves it: of 61 snapshots every fourth, with weights that grow."""
    un.save(folder, model, {"image": image, **(notes or {})})
    kept, V = Snapshots(folder / "training" / "snapshots.safetensors"), model.n_visible
    for number in range(last + 1):
        if kept.wants(number) or number == last:
            weights = np.full((3, V), number / last, np.float16)
            weights[1] *= -0.5
            samples = np.full((2, V), number % 2, np.uint8)
            samples[0] = np.arange(V) % 2
            kept.add(number, 10 * number, {"samples": samples, "filters": weights})
    kept.save()
    lines = [{"step": 10 * k, "validation": -1 / (k + 1)} for k in range(0, last + 1, 10)]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "training" / "metrics.jsonl").write_text(text, encoding="utf-8")
    return folder


def unpacked(told):
    data = base64.b64decode(told["data"])
    if told["dtype"] == "bits":
        return np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
    return np.frombuffer(data, told["dtype"])


def test_snapshots_of_the_fit_become_a_film(tmp_path):
    folder = filmed(tmp_path / "m", un.RBM.create(6, 4, seed=0), [2, 3])
    film = views.payload_of(folder)["film"]
    assert film["steps"] == [10 * k for k in range(0, 61, 4)] and film["units"] == 6
    samples = unpacked(film["samples"]["values"])[: 16 * 2 * 6].reshape(16, 2, 6)
    np.testing.assert_array_equal(samples[5, 0], [0, 1, 0, 1, 0, 1])
    assert not samples[:, 1].any()  # every kept number is even
    filters = unpacked(film["filters"]["values"]).reshape(16, 3, 6)
    assert film["filters"]["scale"] == 1.0
    np.testing.assert_array_equal(filters[-1, :, 0], [127, -64, 127])
    assert np.abs(filters[0]).max() == 0 and 0 < filters[4, 0, 0] < filters[8, 0, 0]


def test_a_film_of_another_model_or_of_none_is_left_out(tmp_path):
    folder = filmed(tmp_path / "m", un.RBM.create(6, 4, seed=0), [2, 3])
    un.save(folder, un.RBM.create(8, 4, seed=0), {"image": [2, 4]})
    assert views.payload_of(folder)["film"] is None
    assert views.payload_of(un.RBM.create(6, 4, seed=0), image=(2, 3))["film"] is None


def test_samples_of_real_columns_are_parts_of_their_largest(tmp_path):
    model = un.GaussianRBM(jnp.ones((2, 3)), jnp.zeros(2), jnp.zeros(3))
    un.save(tmp_path, model)
    kept = Snapshots(tmp_path / "training" / "snapshots.safetensors")
    for number in (0, 1):
        kept.add(number, number, {"samples": np.array([[4.0, -1 - number]], np.float16)})
    kept.save()
    film = views.payload_of(tmp_path)["film"]
    assert unpacked(film["samples"]["values"]).tolist() == [127, -64, 127, -127]
    assert "filters" not in film


def test_the_film_of_a_large_model_is_small(tmp_path):
    """The snapshots of 784 pixels are under 1 MB, and a page of 784x500 stays under 4 MB."""
    rng = np.random.default_rng(0)
    un.save(tmp_path, un.RBM.create(784, 500, seed=0), {"image": [28, 28]})
    kept = Snapshots(tmp_path / "training" / "snapshots.safetensors")
    for number in range(23):  # with more of them every second goes
        filters = rng.normal(size=(16, 784)).astype(np.float16)
        samples = rng.integers(2, size=(16, 784)).astype(np.uint8)
        kept.add(number, number, {"samples": samples, "filters": filters})
    kept.save()
    assert len(kept.kept) == 23
    assert kept.path.stat().st_size < 1_000_000
    assert un.explore(tmp_path).save(tmp_path / "page.html").stat().st_size < 3_200_000


def test_the_command_writes_the_page_of_a_network(tmp_path):
    write_uai(tmp_path / "coin.uai", UaiModel((2,), ((0,),), (np.array([0.25, 0.75]),)))
    args = ["explore", str(tmp_path / "coin.uai"), "--out", str(tmp_path / "out"), "--no-open"]
    result = CliRunner().invoke(app, args)
    assert result.exit_code == 0, result.output
    assert (tmp_path / "out" / "explore.html").is_file()


def test_the_command_says_what_is_not_there(tmp_path):
    result = CliRunner().invoke(app, ["explore", str(tmp_path / "nothing"), "--no-open"])
    assert isinstance(result.exception, UndirectedError)
    assert "does not exist" in str(result.exception)


def test_gaussian_models_are_harmoniums_too():
    model = un.GaussianRBM(jnp.ones((2, 3)), jnp.array([1.0, -1.0]), jnp.zeros(3))
    payload = views.payload_of(model)
    assert [v["kind"] for v in payload["model"]["variables"]] == ["real", "real"]


def test_the_widget_is_the_same_page():
    pytest.importorskip("anywidget", reason="anywidget is not installed")
    widget = un.explore(picture := un.RBM.create(4, 2, seed=0), image=(2, 2)).widget()
    assert json.loads(widget.payload)["model"] == views.payload_of(picture, image=(2, 2))["model"]
    assert widget.state is None and "export default" in str(widget._esm)


def test_without_anywidget_its_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "anywidget", None)
    with pytest.raises(UndirectedError, match=r"undirected\[widget\]"):
        un.explore(un.RBM.create(4, 2, seed=0), image=(2, 2)).widget()


def test_the_small_print_says_how_large_a_model_is():
    layout = un.MixedRBM.create(["binary", "binary", 3, "real", "nonnegative"], 4, seed=0).layout
    assert [views.extent(block) for block in layout.blocks] == [
        "2 visible units",
        "1 visible variable of 3 states",
        "1 real visible unit",
        "1 nonnegative visible unit",
        "4 hidden units",
    ]
    net = un.markov_network([2, 3, 2], [((0, 1), np.ones((2, 3))), ((2,), np.ones(2))])
    assert views.payload_of(net)["small"].startswith("FactorGraph: 3 variables. ")


def test_a_page_is_printed_in_a_line():
    page = un.explore(un.Ising.create(3))
    assert len(repr(page)) < 80
