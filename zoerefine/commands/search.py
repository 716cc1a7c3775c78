"""zoerefine search: a config with lists and ranges -> a study -> its best trial.

What is searched is our own training, or with --repo a script of any repository: each trial is a
launch at one commit.
"""

import argparse
import os
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from zoerefine.base.config import Config, load_config
from zoerefine.base.config.schema import SEARCH
from zoerefine.base.config.searched_keys import OWN_KEYS
from zoerefine.base.config_roles import OWN_MODULES
from zoerefine.base.errors import UserError
from zoerefine.base.messages import say
from zoerefine.base.metric_direction import warn_of_direction
from zoerefine.base.run_dir import RunDir, run_from_launcher
from zoerefine.base.yaml.keys import paired
from zoerefine.base.yaml.read import read_yaml
from zoerefine.base.yaml.write import dump_value
from zoerefine.commands.options import (
    CommandParser,
    add_executor_options,
    add_shared,
    as_path,
    notifying,
    print_json,
    resources_of,
    settings_of,
)
from zoerefine.commands.run import add_job_options, job_of, parsed
from zoerefine.lab.launch.home import home_folder
from zoerefine.lab.search.space.checks import check_sampler, check_search_space
from zoerefine.lab.search.space.script_section import combined, space_in_file, space_of_words
from zoerefine.lab.search.space.space import Parameter, all_keys

if TYPE_CHECKING:
    from zoerefine.lab.search.script.study import LaunchedScript

# Options of a launch that a search does not take, so its help does not list them.
HIDDEN = "once_more", "again", "allow_dirty", "nodes"
# The options that --help lists; --help-all lists all.
USUAL = (
    "--plan", "--search", "--trials", "--workers", "--enqueue", "--executor", "--then",
    "--join", "--metric", "--maximize", "--repo", "--commit", "--config", "--module",
    "--overrides", "--name",
)  # fmt: skip
EPILOG = """\
SEARCH in the config mirrors the other keys:
  SEARCH:
    TRAIN: {LR: {low: 1.0e-4, high: 1.0e-2, log: true}}   # a range
    MODEL: {BASE: [16, 32, 48]}                           # a choice
docs/searching.md describes branches, several objectives and limits.

examples, after `zoerefine data synthesize data/synthetic`:
  zoerefine search --config configs/search.yaml --plan DATA.ROOT data/synthetic
  zoerefine search --config configs/search.yaml --trials 30 --workers 2 --then train \\
      DATA.ROOT data/synthetic
  zoerefine search --config configs/search.yaml --grid DATA.ROOT data/synthetic \\
      SEARCH '{MODEL: {BASE: [16, 32], MAX_LOG: [1.0, 2.0]}}'
  zoerefine search --config configs/search.yaml --search 'TRAIN.CLIP=0.5..2 step 0.5' \\
      DATA.ROOT data/synthetic
  zoerefine search --join runs/search/study

any script of any repository:
  zoerefine search --repo . --commit HEAD --module tools/train.py --config configs/mnist.yaml \\
      --config-flag=--cfg --metric val_acc --maximize --trials 20 --workers 2 \\
      --search 'TRAIN.LR=1e-4..1e-2 log'
"""


def main(argv: Sequence[str]) -> int:
    """Plan a study, run it, or join one as a worker."""
    args, arguments = parsed(parser(), argv)
    if args.join:
        from zoerefine.lab.search.worker import run_worker

        name = args.worker or f"joined-{uuid.uuid4().hex[:8]}"
        run_worker(RunDir(args.join.resolve()), name, args.until)
        return 0
    if not args.config and not (args.repo and not args.module.startswith(OWN_MODULES)):
        raise UserError("--config is missing: give a YAML file with SEARCH")
    if args.once_more or args.again:
        raise UserError("--again is for single runs: give --name or RUN.NAME to search once more")
    if args.json and not args.plan:
        raise UserError("--json is for --plan: `zoerefine show STUDY --json` prints a study")
    if args.repo:
        study = search_script(args, arguments, study_words(args))
    elif args.metric or arguments:
        raise UserError("--metric and words after -- are for scripts: give --repo and --commit too")
    else:
        study = search_training(args)
    if study is not None and run_from_launcher() is None:  # a launcher prints it
        print(study.path)
    return 0


def search_training(args: argparse.Namespace) -> RunDir | None:
    """Search our own training; None where only the plan is printed."""
    cfg = training_config(args)
    space = check_search_space(cfg)  # before torch and Optuna are loaded
    check_words(space, args.overrides)
    if args.plan:
        from zoerefine.depth.study.plan import facts, plan

        if args.json:
            print_json(facts(cfg, space, args.enqueue, args.earlier))
        else:
            print("\n".join(plan(cfg, space, args.enqueue, args.earlier)))
        return None
    from zoerefine.depth.study.trials import OwnTraining, study_folder
    from zoerefine.lab.search.driver import run_study, study_run
    from zoerefine.lab.search.worker_pool import worker_settings

    with notifying(args.notify, "search") as ending:
        ending.run = study_run(study_folder(cfg)).path
        subject = OwnTraining(cfg, space)
        place = (args.executor, resources_of(args, worker_settings(settings_of(cfg), subject)))
        return run_study(subject, args.enqueue, *place, args.earlier)


def training_config(args: argparse.Namespace) -> Config:
    """The config with the spaces of --space and --search."""
    words = [*args.overrides, *study_words(args)]
    if not args.space and not args.search:
        return load_config(args.config, words)
    document = read_yaml(args.config)
    sources = [space_in_file(args.space)] if args.space else []
    sources += space_of_words(args.search)
    trees = [source.read(OWN_KEYS) for source in sources]
    if not args.space:
        trees.insert(0, document.tree.get(SEARCH) or {})
    return load_config(document, [*words, SEARCH, dump_value(combined(trees))])


def parser() -> argparse.ArgumentParser:
    """All options."""
    made = CommandParser(
        "zoerefine search",
        "Search for the best values of the keys that SEARCH in a config lists. Each "
        "trial trains one combination. The same command continues a study that was interrupted.",
        EPILOG,
        USUAL,
    )
    add = made.add_argument
    add("--plan", action="store_true",
        help="print the search space, its size and the time it takes, and check --enqueue and "
        "--from; train nothing")  # fmt: skip
    add_shared(made, "--json")
    add("--space", type=as_path, metavar="FILE",
        help="a YAML file with the search space, instead of SEARCH in the config")  # fmt: skip
    add("--search", action="append", default=[], metavar="KEY=VALUES",
        help="search one more key: 'TRAIN.LR=1e-4..1e-2 log', 'TRAIN.EPOCHS=2..10 step 2', "
        "'MODEL.NAME=[a, b]'; may be repeated")  # fmt: skip
    add("--trials", type=int, metavar="N",
        help="trials in all, those of --enqueue included (STUDY.TRIALS)")  # fmt: skip
    add("--timeout", type=float, metavar="SECONDS",
        help="start no trial after this time; 0: no limit (STUDY.TIMEOUT_S)")  # fmt: skip
    add("--workers", type=int, metavar="N", help="trials that run at a time (STUDY.WORKERS)")
    add("--grid", action="store_true",
        help="try every combination of the lists (STUDY.SAMPLER grid)")  # fmt: skip
    add("--enqueue", type=as_path, nargs="+", default=[], metavar="PATH",
        help="try these first, as trials that --trials counts: configs, or another study's run "
        "for its best five trials")  # fmt: skip
    add("--from", dest="earlier", action="append", type=as_path, default=[], metavar="RUN",
        help="another study's run, whose trials are known here and not run again; where their "
        "values are not comparable, its best five are tried first; may be repeated")  # fmt: skip
    add("--storage", metavar="URL",
        help="database of the study, postgresql://USER@HOST/DATABASE, with the password in "
        "PGPASSWORD or ~/.pgpass, or 'postgresql://USER:$VARIABLE@HOST/DATABASE'; default: a "
        "SQLite file in the study's run "
        "(STUDY.STORAGE)")  # fmt: skip
    add_executor_options(made)
    add_shared(made, "--notify", "--quiet")
    add("--then", choices=["train", "train,export"], metavar="WHAT",
        help="after the last trial; train: train the best at full length; train,export: also "
        "export it (STUDY.THEN)")  # fmt: skip
    add("--join", type=as_path, metavar="RUN",
        help="run one more worker for the study in RUN, on this or another machine")  # fmt: skip
    add("--worker", default="", help=argparse.SUPPRESS)  # its name, given by its driver
    add("--until", type=float, default=0.0, help=argparse.SUPPRESS)
    script = made.add_argument_group(
        "what is searched",
        "zoerefine's own training with --config alone; with --repo, a script of any repository. "
        "A script finds its values in its copy of the config (--overrides arguments: as words), or "
        "without a config as options.",
    )
    script.add_argument("--metric", metavar="NAME",
        help="the script's metric that trials are compared by; it is minimized")  # fmt: skip
    script.add_argument("--maximize", action="store_true", help="the metric is maximized")
    add_job_options(script)
    for action in made._actions:
        if action.dest in HIDDEN:
            action.help = argparse.SUPPRESS
    return made


def check_words(space: Sequence[Parameter], words: Sequence[str]) -> None:
    """Raises `UserError` for KEY VALUE words of a searched key: no trial would have their value."""
    if both := sorted(all_keys(space) & set(words[::2])):
        raise UserError(
            f"{', '.join(both)}: searched, and set by KEY VALUE words for all trials: leave one out"
        )


def study_words(args: argparse.Namespace) -> list[str]:
    """The KEY VALUE words of STUDY that options stand for."""
    words: list[str] = []
    for option, key in (("trials", "TRIALS"), ("timeout", "TIMEOUT_S"), ("workers", "WORKERS"),
                        ("storage", "STORAGE"), ("then", "THEN")):  # fmt: skip
        value = getattr(args, option)
        if value is not None:
            words += [f"STUDY.{key}", str(value)]
    if args.grid:
        words += ["STUDY.SAMPLER", "grid"]
    return words


def search_script(
    args: argparse.Namespace, arguments: tuple[str, ...], study_words: Sequence[str]
) -> RunDir | None:
    """Run a study, or print its plan.

    Args:
        arguments: the words after `--`.
        study_words: KEY VALUE words of STUDY that options stand for.
    """
    subject = make_subject(args, arguments, study_words)
    check_words(subject.space, subject.plan.job.overrides)
    if args.plan:
        if args.json:
            print_json(script_facts(subject, args))
        else:
            print("\n".join(script_plan(subject, args)))
        return None
    from zoerefine.lab.search.driver import run_study, study_run
    from zoerefine.lab.search.worker_pool import worker_settings

    for line in (line for parameter in subject.space for line in parameter.lines()):
        say(f"searching {line}")
    for line in subject.number_notes():
        say(line)
    place = (args.executor, resources_of(args, worker_settings({}, subject)))
    with notifying(args.notify, "search") as ending:
        ending.run = study_run(subject.folder).path
        return run_study(subject, args.enqueue, *place, args.earlier)


def make_subject(
    args: argparse.Namespace, arguments: tuple[str, ...], study_words: Sequence[str]
) -> "LaunchedScript":
    """What the options describe. Raises `UserError`; only mirrors are written."""
    from zoerefine.lab.search.script.study import plan_study  # it loads Optuna

    if not (args.ref or args.branch):
        raise UserError("--commit is missing: give HEAD, a hash, a tag or a branch")
    if not args.metric:
        raise UserError("--metric is missing: give the metric that trials are compared by")
    warn_of_direction(args.metric, args.maximize)
    home = home_folder(args.home)
    os.environ["ZOEREFINE_HOME"] = str(home)  # for the workers
    ours, args.overrides = split_words(args.overrides)
    if args.config:
        args.overrides_in = args.overrides_in or "file"
    spaces = [space_in_file(args.space)] if args.space else []
    spaces += space_of_words(args.search)
    subject = plan_study(
        job_of(args, arguments),
        home,
        args.runs,
        spaces,
        replaces_config=args.space is not None,
        metric=args.metric,
        direction="maximize" if args.maximize else "minimize",
        study_words=[*ours, *study_words],
    )
    check_sampler(subject.options, subject.space)
    return subject


def split_words(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The KEY VALUE words of STUDY, and those for the script. Raises `UserError` for SEARCH."""
    ours: list[str] = []
    script: list[str] = []
    for key, value in paired(words):
        group = key.partition(".")[0]
        if group == SEARCH:
            raise UserError(f"{key}: for a script, give --search 'KEY=LOW..HIGH' or --space FILE")
        target = ours if group == "STUDY" else script
        target += [key, value]
    return ours, script


def script_facts(subject: "LaunchedScript", args: argparse.Namespace) -> dict[str, Any]:
    """What a study would do, for programs."""
    from zoerefine.lab.search.plan import first_facts, plan_facts

    return {
        **plan_facts(subject.space, subject.options, subject.criteria),
        **first_facts(lambda: subject, args.enqueue, args.earlier),
        "estimate": None,
    }


def script_plan(subject: "LaunchedScript", args: argparse.Namespace) -> list[str]:
    """What a study would do."""
    from zoerefine.lab.search.plan import first_lines, plan_lines

    plan = subject.plan
    each = f"each trial: {plan.job.module} at commit {plan.commit[:12]}"
    about = [*subject.number_notes(), each]
    return [
        *plan_lines(subject.space, subject.options, subject.criteria, about),
        *first_lines(lambda: subject, args.enqueue, args.earlier),
    ]
