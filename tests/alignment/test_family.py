"""What one asks of a fitted family: contacts, energies, mutations, new sequences, files."""

import numpy as np
import pytest

import undirected as un
from undirected.alignment.contacts import (
    contact_scores,
    draw_contacts,
    predictive_value,
    rank_contacts,
    write_contacts,
)
from undirected.alignment.family import METHODS
from undirected.core.errors import BadFile, UndirectedError
from undirected.io.model_files import save_model

LETTERS = "-ACGU"


def family(n=400, seed=0):
    """RNA of 8 positions, of which 0 and 7, and 2 and 6, are base pairs."""
    rng = np.random.default_rng(seed)
    states = rng.integers(0, 5, (n, 8))
    partner = np.array([0, 4, 3, 2, 1])
    for i, j in ((0, 7), (2, 6)):
        states[:, j] = np.where(rng.random(n) < 0.8, partner[states[:, i]], states[:, j])
    return un.Alignment(states.astype(np.uint8), LETTERS, tuple(f"s{i}" for i in range(n)))


def random_family_model(length=6, seed=0):
    rng = np.random.default_rng(seed)
    tables = rng.normal(size=(length * (length - 1) // 2, 5, 5)).astype(np.float32)
    fields = rng.normal(size=(length, 5)).astype(np.float32)
    return un.FamilyModel(un.Potts(tables, fields, offset=0.5), LETTERS)


def energy_by_loop(model, row):
    fields, tables = np.asarray(model.potts.fields), np.asarray(model.potts.couplings)
    total, e = float(model.potts.offset) + sum(fields[i, a] for i, a in enumerate(row)), 0
    for i in range(len(row)):
        for j in range(i + 1, len(row)):
            total += tables[e, row[i], row[j]]
            e += 1
    return -total


@pytest.mark.parametrize("method", METHODS)
def test_every_method_finds_the_pairs(method):
    settings = un.alignment.BoltzmannSettings(chains=500, target=0.9)
    model = un.fit_family(family(), method, settings=settings)
    best = model.contacts(separation=0)
    assert {(int(i), int(j)) for i, j in zip(best.i[:2], best.j[:2], strict=True)} == {
        (1, 8),
        (3, 7),
    }
    assert best.score[1] > 2 * best.score[2] and (np.diff(best.score) <= 0).all()
    assert model.notes["method"] == method and model.notes["sequences"] == 400


def test_scores_are_corrected_norms_in_the_zero_sum_gauge():
    model = random_family_model().potts
    norms = np.zeros((6, 6))
    for (i, j), table in zip(
        np.asarray(model.graph.edges), np.asarray(model.couplings), strict=True
    ):
        table = table - table.mean(0) - table.mean(1)[:, None] + table.mean()
        norms[i, j] = norms[j, i] = np.sqrt((table[1:, 1:] ** 2).sum())
    wanted = norms - np.outer(norms.sum(0), norms.sum(0)) / norms.sum()
    np.fill_diagonal(wanted, 0)
    np.testing.assert_allclose(contact_scores(model), wanted, rtol=1e-4, atol=1e-6)


def test_pairs_are_ranked_from_position_1_and_written(tmp_path):
    scores = np.zeros((4, 4))
    scores[0, 3], scores[0, 2], scores[1, 3], scores[0, 1] = 2, 5, -1, 9
    found = rank_contacts(scores, separation=1)
    assert found.i.tolist() == [1, 1, 2] and found.j.tolist() == [3, 4, 4]
    write_contacts(tmp_path / "contacts.csv", found)
    assert (tmp_path / "contacts.csv").read_text() == "i,j,score\n1,3,5\n1,4,2\n2,4,-1\n"
    far = np.full((4, 4), 20.0)
    far[0, 2], far[0, 3] = 7.9, np.nan
    assert predictive_value(found, far, 2) == 0.5
    with pytest.raises(UndirectedError, match="2 pairs with distances, not 3"):
        predictive_value(found, far, 3)
    draw_contacts(tmp_path / "map.png", found, 4, 3, far)
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")


def test_energies_and_mutations():
    model, rows = random_family_model(), ["ACGU-A", "UUUUUU"]
    found = model.energies(un.Alignment.of(rows, "rna"))
    states = un.Alignment.of(rows, "rna").states
    np.testing.assert_allclose(found, [energy_by_loop(model, row) for row in states], rtol=1e-5)
    effects = model.mutations(rows[0])
    for i in range(6):
        for a in range(5):
            row = states[0].copy()
            row[i] = a
            wanted = energy_by_loop(model, row) - energy_by_loop(model, states[0])
            np.testing.assert_allclose(effects[i, a], wanted, atol=1e-4)


def test_samples_have_the_letters_of_the_model():
    """Positions 0 and 7 pair in four fifths of the family; 0.1 is 4 standard errors of 400."""
    model = un.fit_family(family(2000), "pseudo-likelihood", l2=0.001)
    drawn = model.sample(400, sweeps=30, seed=1)
    paired = np.array([0, 4, 3, 2, 1])[drawn.states[:, 0]] == drawn.states[:, 7]
    assert abs(paired.mean() - 0.84) < 0.1 and len(set(drawn.names)) == 400
    assert model.sample(3, 2, seed=5).sequences == model.sample(3, 2, seed=5).sequences


def test_letters_that_are_given_are_held():
    """Position 8 pairs with position 1 as elsewhere; 0.15 is 6 standard errors of 400."""
    model = un.fit_family(family(2000), "pseudo-likelihood", l2=0.001)
    drawn = model.sample(400, sweeps=30, seed=1, given={1: "C", np.int64(2): "-"})
    assert {row[:2] for row in drawn.sequences} == {"C-"}
    assert abs((drawn.states[:, 7] == 3).mean() - 0.84) < 0.15
    for wrong, match in [
        ({0: "A"}, "position 0 is given; pass 1 to"),
        ({1: "X"}, "'X' is given at position 1; pass one of -ACGU"),
        ("C-", "pass {position: letter}"),
    ]:
        with pytest.raises(UndirectedError, match=match):
            model.sample(2, sweeps=1, given=wrong)


def test_a_folder_keeps_model_and_letters(tmp_path):
    model = random_family_model()
    model.save(tmp_path / "model")
    again = un.load_family(tmp_path / "model")
    assert again.letters == LETTERS
    np.testing.assert_array_equal(again.potts.couplings, model.potts.couplings)
    un.save(tmp_path / "other", un.Ising.create(3))
    with pytest.raises(UndirectedError, match="this is a Ising, not a Potts model of an alignment"):
        un.load_family(tmp_path / "other")
    save_model(tmp_path / "bad", model.potts, {"family": {"letters": "-AC"}})
    with pytest.raises(BadFile, match="notes letters '-AC'; wanted 5"):
        un.load_family(tmp_path / "bad")


def test_refusals():
    model = random_family_model()
    with pytest.raises(UndirectedError, match="3 aligned letters for a model of 6 positions"):
        model.energies(un.Alignment.of(["ACG"], "rna"))
    with pytest.raises(UndirectedError, match="1 sequence, all the same"):
        un.fit_family(un.Alignment.of(["ACG"], "rna"))
    with pytest.raises(UndirectedError, match="got a list; pass an Alignment, as read_fasta"):
        un.fit_family(["ACG", "ACU"])
    with pytest.raises(UndirectedError, match="method 'ml'; pass one of pseudo-likelihood"):
        un.fit_family(family(), "ml")
    with pytest.raises(UndirectedError, match="2 letters for 5 states"):
        un.FamilyModel(model.potts, "-A")
    with pytest.raises(UndirectedError, match="count is 0"):
        model.sample(0)


def test_numbers_that_are_none_are_refused():
    model = random_family_model(3)
    counts = [
        lambda: model.sample(1.5, 1),
        lambda: model.sample(1, 1.5),
        lambda: model.contacts(-1),
        lambda: model.contacts(1.5),
        lambda: un.potts_log_z(model.potts, betas=2.5),
        lambda: un.potts_log_z(model.potts, chains=1),
        lambda: predictive_value(model.contacts(0), np.zeros((3, 3)), 0),
    ]
    for call in counts:
        with pytest.raises(UndirectedError, match="pass a whole number from [012]$"):
            call()
    for l2 in (np.nan, -1.0, "small"):
        with pytest.raises(UndirectedError, match=f"l2 is {l2!r}; pass a number from 0"):
            un.fit_family(family(20), l2=l2)


def test_letters_that_the_model_lacks_are_told_with_what_to_write():
    """The errors named an argument `unknown` that neither method has."""
    model, protein = random_family_model(), un.Alignment.of(["ACDEFG"])
    wanted = r"write - for it, as un.Alignment.of\(rows, '-ACGU', unknown='gap'\) does$"
    with pytest.raises(BadFile, match=f"^mutations: .* has the letter 'X', .*; {wanted}"):
        model.mutations("ACGUAX")
    with pytest.raises(BadFile, match=f"^energies: .* has the letter 'D', .*; {wanted}"):
        model.energies(protein)
    mended = un.Alignment.of(protein.sequences, "-ACGU", unknown="gap")
    np.testing.assert_allclose(
        model.energies(mended), model.energies(un.Alignment.of(["AC---G"], "rna"))
    )
    with pytest.raises(UndirectedError, match="^mutations: sequence 1 is 3; pass texts"):
        model.mutations(3)


def test_verbs_of_models_say_what_a_family_has(tmp_path):
    model = random_family_model()
    potts = "pass the model that it holds as its `potts`"
    for verb in ("save", "sample"):
        with pytest.raises(UndirectedError, match=f"call its own method {verb}, or {potts}"):
            getattr(un, verb)(*((tmp_path, model) if verb == "save" else (model, 3)))
    for verb in (un.query, un.log_partition, un.solve):
        with pytest.raises(UndirectedError, match=f"FamilyModel; {potts}"):
            verb(model)


def test_what_is_of_another_kind_is_refused():
    with pytest.raises(UndirectedError, match="energies: got a list; pass an Alignment"):
        random_family_model(3).energies(["ACG"])
    with pytest.raises(UndirectedError, match="FamilyModel: got a Ising; pass a Potts"):
        un.FamilyModel(un.Ising.create(3), "-A")
    with pytest.raises(UndirectedError, match="potts_log_z: got a Ising; pass a Potts"):
        un.potts_log_z(un.Ising.create(3))


@pytest.mark.parametrize("method", ["pseudo-likelihood", "logrise"])
@pytest.mark.filterwarnings("error")
def test_steps_that_go_too_far_warn_of_nothing(method):
    """They have no finite value and are halved."""
    rows = un.Alignment.of(["ACGU", "ACGA", "GUGU", "GUGA"] * 5, "rna")
    found = un.fit_family(rows, method, l2=0.0 if method == "pseudo-likelihood" else 0.01)
    assert np.isfinite(found.potts.couplings).all()
