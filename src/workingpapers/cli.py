"""The ``workingpapers`` command. Each function here is one command; the work is done elsewhere."""

import shlex
import sys
import webbrowser
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from workingpapers import data, project, readiness
from workingpapers.sources import sources

# The class of all errors in the use of a command; typer does not give it a name of its own.
UsageProblem = typer.BadParameter.__mro__[2]
EXPECTED = (ValueError, OSError, ImportError, RuntimeError)


class OneLineErrors(TyperGroup):
    """A command whose errors are one line: 1 is a failure, 2 wrong use, 130 an interruption."""

    def main(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Run, and leave with the exit code."""
        kwargs["standalone_mode"] = False
        try:
            code = super().main(*args, **kwargs)
        except UsageProblem as error:
            _fail(f"{error.format_message()} {_where_to_read(error)}", error.exit_code)
        except typer.Abort:
            _fail("interrupted", 130)
        except EXPECTED as error:
            _fail(str(error), 1, getattr(error, "__notes__", []))
        sys.exit(code or 0)

    def invoke(self, ctx: typer.Context) -> Any:
        """Run the chosen command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise typer.Abort() from None


def _fail(message: str, code: int, notes: Sequence[str] = ()) -> NoReturn:
    typer.echo(f"error: {' '.join(message.split())}", err=True)
    for note in notes:  # where a run failed, in its own process
        typer.echo(note, err=True)
    sys.exit(code)


def _where_to_read(error: Exception) -> str:
    context = getattr(error, "ctx", None)
    return f"(see `{context.command_path} --help`)" if context else ""


def _usage(check: Callable[[str], Any]) -> Callable[[Any], Any]:
    """Turn the ValueErrors of a check of one or several names into errors of usage."""

    def callback(value: Any) -> Any:
        try:
            for name in [value] if isinstance(value, str) else value:
                check(name)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error
        return value

    return callback


def _group(text: str) -> typer.Typer:
    plain = {"rich_markup_mode": None, "pretty_exceptions_enable": False}
    return typer.Typer(cls=OneLineErrors, help=text, add_completion=False, **plain)


app = _group("Working Papers: papers that you can run. The commands that go with the book.")
data_app = _group("Data sets that can be fetched: what there is, and where it lies.")
course_app = _group("Courses from the exercises of the book, graded with nbgrader.")
app.add_typer(data_app, name="data")
app.add_typer(course_app, name="course")

Chapter = Annotated[
    str,
    typer.Argument(
        metavar="CH", help="A chapter, as `list` names it.", callback=_usage(project.check_slug)
    ),
]
Chapters = Annotated[
    list[str],
    typer.Argument(
        metavar="CH", help="Chapters, as `list` names them.", callback=_usage(project.check_slug)
    ),
]
Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="As `data list` names it.", callback=_usage(data.get)),
]
Device = StrEnum("Device", ["cpu", "cuda"])
Watermark = StrEnum("Watermark", ["lefthash", "sumhash", "selfhash", "aaronson", "kth"])
TextFile = Annotated[
    list[Path],
    typer.Argument(
        metavar="TEXT", help="UTF-8 text files of one source.", exists=True, dir_okay=False
    ),
]


def table(rows: Sequence[Sequence[str]]) -> str:
    """Lay rows of text out in columns.

    Parameters
    ----------
    rows : sequence of sequences of str
        All of the same length; the first one holds the headings.

    Returns
    -------
    str
        A line a row, the columns two spaces apart.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
    return "\n".join(lines)


@app.command("list", epilog="Example: workingpapers list")
def list_chapters() -> None:
    """List the chapters by name and title."""
    rows = [(slug, project.title(slug)) for slug in project.papers()]
    typer.echo(table([("chapter", "title"), *rows]))


@app.command("open", epilog="Example: workingpapers open fair_bandits")
def open_chapter(chapter: Chapter) -> None:
    """Open a chapter of the built book in the web browser."""
    page = project.root() / "_build" / "html" / f"{chapter}.html"
    if not page.is_file():
        raise FileNotFoundError(f"{page} has not been built: run `make book`")
    if not webbrowser.open(page.as_uri()):
        raise OSError(f"no web browser could be started; the page is {page}")


@app.command(epilog="Example: workingpapers execute fair_bandits")
def execute(
    name: Annotated[
        str,
        typer.Argument(
            metavar="CH",
            help="A chapter, or another page such as index.",
            callback=_usage(project.notebooks),
        ),
    ],
) -> None:
    """Run the notebooks of a chapter and store them with their outputs."""
    from nbclient.exceptions import CellExecutionError

    from workingpapers import notebooks

    for notebook in project.notebooks(name):
        try:
            notebooks.execute(notebook)
        except CellExecutionError as error:
            raise RuntimeError(f"{notebook}: {error.ename}: {error.evalue}") from error
        typer.echo(f"executed: {notebook.relative_to(project.root())}")


@app.command(epilog="Example: workingpapers reproduce fair_bandits --scale laptop --jobs 2")
def reproduce(
    chapter: Chapter,
    scale: Annotated[
        str, typer.Option(help="The size of the experiments: laptop, paper or as the chapter says.")
    ] = "laptop",
    device: Annotated[Device, typer.Option(help="Where to compute.")] = Device.cpu,
    seeds: Annotated[int | None, typer.Option(min=1, help="Seeds an experiment.")] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes; default: all cores.")] = None,
    scheduler: Annotated[str | None, typer.Option(help="Address of a Dask scheduler.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Two runs each; writes nothing.")
    ] = False,
) -> None:
    """Measure a paper's claims, and write down whether they hold."""
    from workingpapers import lab  # brings in pandas and scipy: too slow for `--help`

    written = lab.reproduce(
        project.benchmark(chapter),
        chapter,
        scale=scale,
        seeds=seeds,
        jobs=jobs,
        scheduler=scheduler,
        device=device.value,
        dry_run=dry_run,
        folder=project.root() / "benchmarks" / "results",
        sources=sources(chapter),
        command=_command(chapter, scale, device, seeds),
        progress=True,
    )
    if written is None:
        typer.echo("The experiments can be built and run. Nothing was written.")
        return
    typer.echo(claims_table(lab.read_results(written).claims))
    typer.echo(f"\nWritten: {written}")
    typer.echo(f"Next: `make execute CH={chapter}` takes these figures into the chapter.")


def _command(chapter: str, scale: str, device: Device, seeds: int | None) -> str:
    """Write down the command; how the runs were spread over processes changes no figure."""
    words = ["workingpapers", "reproduce", chapter, "--scale", scale]
    words += ["--device", device.value] if device is not Device.cpu else []
    words += ["--seeds", str(seeds)] if seeds is not None else []
    return shlex.join(words)


def claims_table(claims: Sequence[dict[str, Any]]) -> str:
    """Lay out measured claims in columns.

    Parameters
    ----------
    claims : sequence of dict
        The claims of a result file.

    Returns
    -------
    str
        A line a claim: id, figure with its interval, threshold, verdict, the claim in words.
    """
    rows = [("claim", "measured", "threshold", "verdict", "")]
    for claim in claims:
        measured = "{value:.4g} [{low:.4g}, {high:.4g}]".format(**claim)
        verdict = "holds" if claim["holds"] else "does not hold"
        rows.append((claim["id"], measured, claim["threshold"], verdict, claim["sentence"]))
    return table(rows)


@app.command(
    "spoofing-test",
    epilog="Example: workingpapers spoofing-test letter.txt --key 7 --reference books.txt",
)
def spoofing_test(
    text: TextFile,
    key: Annotated[
        int,
        typer.Option(
            min=0,
            help="The secret key of the watermark; other users of a machine see what a command "
            "line says, but not its environment.",
            envvar="WORKINGPAPERS_KEY",
        ),
    ],
    reference: Annotated[
        Path, typer.Option(help="A text file of ordinary text.", exists=True, dir_okay=False)
    ],
    scheme: Annotated[Watermark, typer.Option(help="The watermark.")] = Watermark.selfhash,
    width: Annotated[
        int | None,
        typer.Option(min=1, help="Context tokens of sumhash (2), selfhash or aaronson (3)."),
    ] = None,
    length: Annotated[
        int | None, typer.Option(min=1, help="Length of the key sequence of kth (256).")
    ] = None,
    gamma: Annotated[
        float | None, typer.Option(help="Share of green tokens of the hashes (0.25).")
    ] = None,
    tokenizer: Annotated[
        Path | None,
        typer.Option(
            help="The model's tokenizer.json; by default byte-level BPE trained on the reference.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    vocab_size: Annotated[
        int | None, typer.Option(min=256, help="Tokens of the tokenizer that is trained (1024).")
    ] = None,
    reprompted: Annotated[
        list[Path] | None,
        typer.Option(
            help="Text files that the model wrote anew on the same subjects; once for each.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    alpha: Annotated[float, typer.Option(help="False alarm rate.")] = 0.01,
) -> None:
    """Say whether text carries a watermark, and if so whether it was forged."""
    # They bring in transformers: seconds.
    from workingpapers import language, watermark_spoofing

    if tokenizer is not None and vocab_size is not None:
        raise typer.BadParameter("--vocab-size means nothing with --tokenizer")
    ordinary = language.read_corpus(reference).texts
    coder = (
        language.train_tokenizer(ordinary, vocab_size or 1024)
        if tokenizer is None
        else _load(tokenizer)
    )
    size = coder.get_vocab_size()
    mark = _watermark(scheme, key, size, width=width, length=length, gamma=gamma)
    counts = watermark_spoofing.NGramCounts.from_texts(
        language.encode(coder, ordinary), watermark_spoofing.gram_width(mark), size
    )
    report = watermark_spoofing.examine(
        _encoded(coder, text),
        mark,
        counts,
        mode="reprompting" if reprompted else "standard",
        reprompted=_encoded(coder, reprompted) if reprompted else None,
        alpha=alpha,
    )
    made = f"byte-level BPE trained on {reference}" if tokenizer is None else tokenizer
    typer.echo(f"tokens: {made}, {size} of them; they must be those of the watermarked model")
    typer.echo(report)


OPTIONS = {
    Watermark.lefthash: {"gamma": 0.25},
    Watermark.sumhash: {"width": 2, "gamma": 0.25},
    Watermark.selfhash: {"width": 3, "gamma": 0.25},
    Watermark.aaronson: {"width": 3},
    Watermark.kth: {"length": 256},
}


def _watermark(scheme: Watermark, key: int, vocab_size: int, **given: float | None) -> Any:
    """Make the watermark; an option that it does not have is an error of usage."""
    from workingpapers import watermark_spoofing as ws

    options = dict(OPTIONS[scheme])
    for name, value in given.items():
        if value is not None and name not in options:
            raise typer.BadParameter(f"--{name} means nothing for {scheme.value}")
        options |= {} if value is None else {name: value}
    if scheme is Watermark.kth:
        return ws.KTH(key, vocab_size, **options)
    if scheme is Watermark.aaronson:
        return ws.Aaronson(key, vocab_size, options["width"])
    seeding = "self" if scheme is Watermark.selfhash else "sum"
    width = options.get("width", 1)
    return ws.KGW(key, vocab_size, width, gamma=options["gamma"], seeding=seeding)


def _load(file: Path) -> Any:
    """Load a tokenizer; the library raises nothing more special than Exception."""
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:
        raise ValueError(f"{file} is not a tokenizer.json: {error}") from error


def _encoded(tokenizer: Any, files: Sequence[Path]) -> list[Any]:
    """Turn files into tokens, a text a file."""
    from workingpapers import language

    texts = []
    for file in files:
        try:
            texts.append(file.read_bytes().decode())
        except UnicodeDecodeError as error:
            raise ValueError(f"{file} must be UTF-8 text: {error}") from error
        if not texts[-1].strip():
            raise ValueError(f"{file} must hold text, it is empty")
    return language.encode(tokenizer, texts)


@data_app.command("list", epilog="Example: workingpapers data list")
def data_list() -> None:
    """List the data sets that can be fetched."""
    for entry in data.list_datasets():
        typer.echo(f"{entry.name}: {entry.title}")
        typer.echo(f"    {entry.filename}, {entry.size / 1e6:.1f} MB, {entry.licence}")
        typer.echo(f"    from {entry.source}")
        if entry.offline:
            typer.echo(f"    without it: {entry.offline}")


@data_app.command("fetch", epilog="Example: workingpapers data fetch etth1")
def data_fetch(name: Name) -> None:
    """Fetch a data set, or what is missing of it, and check it."""
    entry = data.get(name)
    typer.echo(f"{entry.title}: {entry.size / 1e6:.1f} MB, {entry.licence}, from {entry.url}")
    typer.echo(data.fetch(name))


@data_app.command("path", epilog="Example: head -3 $(workingpapers data path etth1)")
def data_path(name: Name) -> None:
    """Print where a fetched data set lies, once it has been checked."""
    typer.echo(data.path(name))


@contextmanager
def _needs(extra: str) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise ImportError(f'{error}: run `pip install "workingpapers[{extra}]"`') from error


@course_app.command("make", epilog="Example: workingpapers course make fair_bandits")
def course_make(
    chapters: Chapters,
    output: Annotated[Path, typer.Option(help="The folder to make.")] = Path("course"),
) -> None:
    """Make a course: notebooks for students, and a folder for their teacher."""
    with _needs("course"):
        from workingpapers import course

        made = course.make(chapters, output)
    typer.echo(f"Made: {made}")
    typer.echo(f"Next: hand out {made / 'student'}; {made / 'instructor' / 'README.md'} says more.")


@course_app.command("check", epilog="Example: workingpapers course check fair_bandits")
def course_check(chapters: Chapters) -> None:
    """Check exercises: right answers get all points, none get none, wrong ones lose theirs."""
    with _needs("course"):
        from workingpapers import course

        report = course.check(chapters)
    typer.echo(report.table.to_string(index=False))
    for problem in report.problems:
        typer.echo(f"problem: {problem}")
    if report.problems:
        raise ValueError(f"the exercises have problems: {len(report.problems)}, listed above")
    typer.echo("All points are as they should be.")


@course_app.command("grade", epilog="Example: workingpapers course grade course")
def course_grade(
    folder: Annotated[Path, typer.Argument(help="The folder that `course make` made.")],
) -> None:
    """Grade all that was handed in, and write the points into grades.csv."""
    with _needs("course"):
        from workingpapers import course

        points = course.grade(folder)
    typer.echo(points.to_string(index=False))
    typer.echo(f"Written: {folder / 'instructor' / 'grades.csv'}")


@app.command(epilog="Example: workingpapers check")
def check() -> None:
    """Say whether this machine has what the book needs."""
    findings = readiness.examine(project.root())
    rows = [(item.name, item.found, item.verdict, item.purpose) for item in findings]
    typer.echo(table([("what", "found", "verdict", "needed for"), *rows]))
    wrong = [item.name for item in findings if item.required and item.verdict != "ok"]
    if wrong:
        raise OSError(f"this machine is not ready: {', '.join(wrong)}; `make book` installs them")


@app.command(epilog='Example: workingpapers new fair_coins --title "Tossing fairly"')
def new(
    slug: Annotated[str, typer.Argument(help="Name of the chapter, in snake_case.")],
    title: Annotated[str, typer.Option(help="Title, in plain words.")],
) -> None:
    """Begin a chapter: write its five parts, each saying what belongs there."""
    with _needs("course"):
        from workingpapers import skeleton  # brings in nbformat: a second

    _usage(skeleton.check_new_slug)(slug)
    _usage(skeleton.check_title)(title)
    for file in skeleton.create(slug, title):
        typer.echo(f"written: {file.relative_to(project.root())}")
    typer.echo(f"Next: add {slug} and exercises/{slug} to _toc.yml,")
    typer.echo(f"and workingpapers.{slug} to the import contracts in pyproject.toml.")


def main() -> None:
    """Run the command."""
    app(prog_name="workingpapers")
