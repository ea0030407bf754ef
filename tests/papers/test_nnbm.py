"""Every experiment of the paper runs at its smallest size and writes a record."""

import pytest

from undirected.experiments import record, runner


@pytest.mark.smoke
@pytest.mark.parametrize("name", ["table1", "table2", "scaling"])
def test_smoke(name, tmp_path):
    result = runner.run(f"nnbm/{name}", "smoke", out=tmp_path)
    assert result.rows
    assert record.read(runner.record_path(tmp_path, f"nnbm/{name}", "smoke")).rows == result.rows


@pytest.mark.smoke
def test_smoke_on_digits(tmp_path):
    result = runner.run("nnbm/real", "smoke", out=tmp_path)
    assert {row.metric for row in result.rows} == {"RMSE", "share below zero", "log density (nats)"}
    assert (tmp_path / "nnbm" / result.images[0]["file"]).is_file()
