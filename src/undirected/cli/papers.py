"""`undirected reproduce | report | data`: experiments, their records, and data sets."""

from pathlib import Path

from undirected.cli import console
from undirected.core.files import check_folder


def list_experiments(as_json: bool) -> None:
    """Print the names of all experiments, and what each is about."""
    from undirected.experiments import registry

    names = list(registry.names())
    width = max(map(len, names))
    lines = [f"{name:{width}}  {registry.title(name)}".rstrip() for name in names]
    console.result({"experiments": names}, as_json, lines)


def reproduce_paper(
    name: str,
    profile: str,
    out: Path,
    changes: list[str],
    fresh: bool,
    seed: int,
    seeds: int,
    as_json: bool,
) -> None:
    """Run experiments, write their records and one page."""
    from undirected.experiments import registry, runner
    from undirected.experiments.stages import Event
    from undirected.report import markdown, terminal
    from undirected.report.page import read_records, write_page
    from undirected.report.tables import pivot

    shown = terminal if console.out.is_terminal else markdown
    paths, lines = [], []
    for experiment in registry.find(name):
        check_folder(out)
        bar = console.Bar(experiment, "%")

        def show(event: Event, bar: console.Bar = bar) -> None:
            if event.fraction is not None:
                bar.update(100 * event.fraction, 100, detail=event.message)
            elif event.message:
                console.say(f"{event.experiment}: {event.message}")

        with bar.running():
            record = runner.run(
                experiment,
                profile,
                seed,
                out,
                seeds=seeds,
                overrides=changes,
                resume=not fresh,
                on_event=show,
            )
        paths.append(runner.record_path(out, experiment, profile))
        lines += [f"{experiment} ({record.seconds:.0f} s)", ""]
        lines += [*map(shown.render, pivot(record.to_dict())), ""]
    page = Path(out) / f"{name.replace('/', '-')}-{profile}.html"
    write_page(read_records(*paths), page, title=f"{name}, profile {profile}")
    summary = {"records": [str(path) for path in paths], "page": str(page)}
    console.result(summary, as_json, [*lines, f"Wrote {page}"])


def report_records(records: list[Path], out: Path, markdown: bool, as_json: bool) -> None:
    """Write the page of some records, or print their tables."""
    from undirected.report.markdown import table
    from undirected.report.page import read_records, write_page

    found = read_records(*records)
    if not found:
        places = ", ".join(map(str, records))
        raise FileNotFoundError(f"{places}: no records here; `undirected reproduce` writes them")
    if markdown:
        tables = [table(record) for record in found]
        console.result({"tables": tables}, as_json, tables)
        return
    write_page(found, out)
    console.result({"page": str(out), "records": len(found)}, as_json, [f"Wrote {out}"])


def list_data(as_json: bool) -> None:
    """Print the names of the data sets."""
    from undirected import data

    console.result({"data": list(data.names())}, as_json, list(data.names()))


def fetch_data(name: str, as_json: bool) -> None:
    """Load a data set and say what it holds."""
    from undirected import data

    found = data.load(name)
    counts = {part: len(getattr(found, part)) for part in ("train", "valid", "test")}
    summary = {"name": found.name, "units": found.n, **counts, "image": found.image_shape}
    rows = ", ".join(f"{count:,} {part}" for part, count in counts.items() if count)
    lines = [f"{found.name}: {rows}; {found.n} units", found.description, found.citation]
    console.result(summary, as_json, lines)
