"""zoerefine search --repo: a script of any repository, each trial a launch at one commit."""

import argparse
import os
from collections.abc import Sequence
from typing import Any

from zoerefine.base.config.schema import SEARCH
from zoerefine.base.errors import UserError
from zoerefine.base.run_dir import RunDir
from zoerefine.commands.executor_options import resources_of
from zoerefine.commands.options import print_json
from zoerefine.commands.run import job_of
from zoerefine.lab.launch.housekeeping import home_folder
from zoerefine.lab.launch.notify import notifying
from zoerefine.lab.search.plan_lines import (
    budget_line,
    first_facts,
    first_lines,
    plan_facts,
    space_lines,
)
from zoerefine.lab.search.script.study import plan_study
from zoerefine.lab.search.script.trials import LaunchedScript
from zoerefine.lab.search.space.reader import check_sampler
from zoerefine.lab.search.space.sources import space_in_file, space_of_words


def search_script(
    args: argparse.Namespace, arguments: tuple[str, ...], study_words: Sequence[str]
) -> RunDir | None:
    """Run a study, or print its plan.

    Args:
        arguments: the words after `--`.
        study_words: KEY VALUE words of STUDY that options stand for.
    """
    subject = make_subject(args, arguments, study_words)
    if args.plan:
        if args.json:
            print_json(facts(subject, args))
        else:
            print("\n".join(plan_lines(subject, args)))
        return None
    from zoerefine.lab.search.driver import run_study, study_run
    from zoerefine.lab.search.worker_pool import worker_settings

    place = (args.executor, resources_of(args, worker_settings({}, subject)))
    with notifying(args.notify, "search") as ending:
        ending.run = study_run(subject.folder).path
        return run_study(subject, args.enqueue, *place, args.earlier)


def make_subject(
    args: argparse.Namespace, arguments: tuple[str, ...], study_words: Sequence[str]
) -> LaunchedScript:
    """What the options describe. Raises `UserError`; only mirrors are written."""
    if not (args.commit or args.branch):
        raise UserError("--commit is missing: give a hash, a tag or a branch")
    if not args.metric:
        raise UserError("--metric is missing: give the metric that trials are compared by")
    home = home_folder(args.home)
    os.environ["ZOEREFINE_HOME"] = str(home)  # for the workers
    ours, args.overrides = split_words(args.overrides)
    if args.config:
        args.overrides_in = args.overrides_in or "file"
    spaces = [space_in_file(args.space)] if args.space else []
    spaces += space_of_words(args.search)
    study = plan_study(
        job_of(args, arguments),
        home,
        spaces,
        replaces_config=args.space is not None,
        metric=args.metric,
        direction="maximize" if args.maximize else "minimize",
        study_words=[*ours, *study_words],
    )
    subject = LaunchedScript(study, study.plan.run(args.runs).path.parent / "study")
    check_sampler(subject.options, subject.space)
    return subject


def split_words(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The KEY VALUE words of STUDY, and those for the script. Raises `UserError` for SEARCH."""
    if len(words) % 2:
        raise UserError(f"overrides come as KEY VALUE pairs; {words[-1]!r} has no value")
    ours: list[str] = []
    script: list[str] = []
    for key, value in zip(words[::2], words[1::2], strict=True):
        group = key.partition(".")[0]
        if group == SEARCH:
            raise UserError(f"{key}: for a script, give --search 'KEY=LOW..HIGH' or --space FILE")
        target = ours if group == "STUDY" else script
        target += [key, value]
    return ours, script


def facts(subject: LaunchedScript, args: argparse.Namespace) -> dict[str, Any]:
    """What a study would do, for programs."""
    study = subject.study
    return {
        **plan_facts(subject.space, subject.options, {study.metric: study.direction}),
        **first_facts(subject, args.enqueue, args.earlier),
        "limits": {},
        "estimate": None,
    }


def plan_lines(subject: LaunchedScript, args: argparse.Namespace) -> list[str]:
    """What a study would do."""
    study = subject.study
    has_sources = args.enqueue or args.earlier
    return [
        *space_lines(subject.space),
        f"{study.direction}: {study.metric}",
        f"each trial: {study.plan.job.module} at commit {study.plan.commit[:12]}",
        budget_line(subject.space, subject.options),
        *(first_lines(subject, args.enqueue, args.earlier) if has_sources else []),
    ]
