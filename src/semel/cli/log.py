"""`semel log`: shows what stands in log files, and checks them. It works on files, without a node, and never writes."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from semel.cli.failures import Exit, NotFound, WrongCall
from semel.cli.output import Output, add_output_arguments, count_text

if TYPE_CHECKING:
    from semel.log.inspection.files import Files, PartitionFiles

_EXAMPLES = """examples:
  semel log dump ./data/payments-0
  semel log check ./data
"""
_DUMP = """PATH is a segment (.log), the directory of a partition, or a data directory with --topic and --partition.

examples:
  semel log dump ./data/payments-0
  semel log dump ./data --topic payments --partition 0 --records --from 120 --count 10
  semel log dump ./data/payments-0/00000000000000000000.log --json
  semel log dump ./data/__transaction_state-3 --decode
  semel log dump ./data/payments-0 --producers
"""
_CHECK = """Changes nothing, and may run beside a node: then the end of the active segments cannot be judged, nor what a
node writes only when it stops. Data directories of Apache Kafka are read as well.

examples:
  semel log check ./data
  semel log check ./data/payments-0 --records
  semel log check ./data --json
  semel log check ./data --against ./data-of-another-node

--against compares the partitions that both nodes have, and does nothing else: below the high watermark they hold the
same batches, offset by offset; compacted topics the same latest record of each key.

exit codes: 0 nothing is wrong, 1 something is. docs/log-files.md explains the files.
"""
_ACCEPT = """A partition of which data are missing is offline, and a damaged metadata log ends the start of a node until
the files are restored from a copy, or this command is given. Batches that cannot be read are taken out of the log and
kept beside it; offsets that are missing stay missing, and consumers go on behind them. What is lost may have been the
end of a transaction: see semel txn why-stuck. Of the metadata log, it may have been topics and settings.

example:
  semel log accept-loss ./data/payments-0

exit codes: 0 the partition can be served, 1 it cannot.
"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.epilog = _EXAMPLES
    actions = command.add_subparsers(dest="action", metavar="ACTION", required=True)

    dump = actions.add_parser(
        "dump",
        help="show the batches of a log",
        description="Show the batches of a log: offsets, producers, sequences, and what became of transactions.",
        epilog=_DUMP,
    )
    dump.add_argument("path", metavar="PATH", help="a segment, a partition's directory or a data directory")
    dump.add_argument("--topic", metavar="TOPIC", help="of a data directory")
    dump.add_argument("--partition", type=_offset, metavar="N", help="of that topic (default 0)")
    dump.add_argument("--from", dest="first", type=_offset, metavar="OFFSET", help="begin with the batch that holds it")
    dump.add_argument("--count", type=_offset, metavar="N", help="show at most N batches")
    dump.add_argument("--records", action="store_true", help="keys, values and headers too")
    dump.add_argument("--full", action="store_true", help="do not shorten keys and values")
    dump.add_argument(
        "--decode",
        action="store_true",
        help="read the records of __consumer_offsets, __transaction_state and __cluster_metadata",
    )
    files = dump.add_mutually_exclusive_group()
    files.add_argument("--indexes", action="store_true", help="show the offset and time indexes instead")
    files.add_argument("--producers", action="store_true", help="show the producer snapshots instead")
    files.add_argument("--aborted", action="store_true", help="show the index of aborted transactions instead")
    add_output_arguments(dump)
    dump.set_defaults(run=_dump)

    check = actions.add_parser(
        "check",
        help="look for damage: batches, indexes, producer state",
        description="Look for damage: CRCs, offsets, indexes, and producer state and aborted transactions by a replay.",
        epilog=_CHECK,
    )
    check.add_argument("path", metavar="DIR", help="a data directory, or that of one partition")
    check.add_argument(
        "--records", action="store_true", help="open every batch and read each record, which takes longer"
    )
    check.add_argument("--against", metavar="DIR", help="compare with the directory of another node, or its partition")
    add_output_arguments(check)
    check.set_defaults(run=_check)

    accept = actions.add_parser(
        "accept-loss",
        help="serve a partition without what is lost of it",
        description="Make what is left of a damaged partition a log that a node serves. Only on a stopped node.",
        epilog=_ACCEPT,
    )
    accept.add_argument("path", metavar="DIR/TOPIC-N", help="the directory of the partition, there or not")
    add_output_arguments(accept)
    accept.set_defaults(run=_accept)


def _offset(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 on")
    return int(text)


# -- dump


def _dump(options: argparse.Namespace) -> int:
    from semel.cli.log_dump import show_aborted, show_batches, show_indexes, show_producers
    from semel.log.inspection.dump import dump_batches, dump_file
    from semel.log.inspection.files import RealFiles, open_partition, partition_of

    output, files = Output.of(options), RealFiles()
    path = _dumped_path(files, options)
    if path.endswith(".checkpoint"):
        file = files.open(path)
        topic = partition_of(os.path.dirname(os.path.abspath(path)))
        wants_records = options.records or options.decode
        show_batches(output, dump_file(file, reads_records=wants_records), options, None if topic is None else topic[0])
        file.close()
        return Exit.OK
    is_file = not files.is_dir(path)
    directory = os.path.dirname(path) or "." if is_file else path
    partition = open_partition(files, directory)
    bases = _bases(partition, path if is_file else None)
    topic = partition_of(os.path.abspath(directory))
    if options.indexes:
        show_indexes(output, partition, bases)
    elif options.producers:
        show_producers(output, partition)
    elif options.aborted:
        show_aborted(output, partition, bases)
    else:
        wants_records = options.records or options.decode
        batches = dump_batches(partition, bases, first=options.first, reads_records=wants_records)
        show_batches(output, batches, options, None if topic is None else topic[0])
    return Exit.OK


def _dumped_path(files: Files, options: argparse.Namespace) -> str:
    """The file or partition directory that the options mean."""
    from semel.log.inspection.directory_check import partition_directories

    path: str = options.path.rstrip("/") or "/"
    if not files.exists(path):
        raise NotFound(f"{path} is not there")
    if options.topic is not None:
        path = f"{path}/{options.topic}-{options.partition or 0}"
        if not files.is_dir(path):
            raise NotFound(f"{path} is not there: no record of that partition was ever written here")
    elif options.partition is not None:
        raise WrongCall("--partition needs --topic")
    if not files.is_dir(path):
        if not path.endswith((".log", ".checkpoint")):
            raise WrongCall(
                f"{path} is not a segment: give its .log, or the directory with --indexes, --producers or --aborted"
            )
        return path
    inside = partition_directories(files, path)
    if inside and not any(name.endswith(".log") for name in files.list_dir(path)):
        names = ", ".join(os.path.basename(one) for one in inside[:10]) + (", ..." if len(inside) > 10 else "")
        raise WrongCall(f"{path} holds several logs: choose one with --topic and --partition ({names})")
    return path


def _bases(partition: PartitionFiles, path: str | None) -> list[int]:
    if path is None:
        if not partition.bases:
            raise NotFound(f"{partition.directory} holds no segment")
        return partition.bases
    stem = os.path.basename(path)[: -len(".log")]
    if not (stem.isdecimal() and int(stem) in partition.bases):
        raise WrongCall(f"{path}: the name of a segment is its first offset in 20 digits")
    return [int(stem)]


# -- accept-loss


def _accept(options: argparse.Namespace) -> int:
    from semel.cli.log_accepting import accept_loss

    return accept_loss(Output.of(options), options.path)


# -- check


def _check(options: argparse.Namespace) -> int:
    from semel.cli.log_findings import show_findings
    from semel.log.inspection.directory_check import (
        LOCK,
        DirectoryCheck,
        is_root,
        log_bytes,
        partition_directories,
    )
    from semel.log.inspection.files import RealFiles, is_locked, partition_of
    from semel.log.inspection.findings import Findings

    output, files, findings = Output.of(options), RealFiles(), Findings()
    path: str = options.path.rstrip("/") or "/"
    if options.against is not None:
        from semel.cli.log_against import check_against

        return check_against(output, files, path, options.against)
    if not files.is_dir(path):
        raise NotFound(f"{path} is not a directory")
    is_whole = is_root(files, path) or bool(partition_directories(files, path))
    directories = partition_directories(files, path) if is_whole else [path]
    if not is_whole and not any(name.endswith(".log") for name in files.list_dir(path)):
        raise WrongCall(f"{path} is neither a data directory nor that of a partition: it holds no log")
    parent = os.path.dirname(os.path.abspath(path))
    root = path if is_whole else parent if partition_of(path) and is_root(files, parent) else None
    is_running = root is not None and is_locked(f"{root}/{LOCK}")
    if is_running:
        output.note(f"a node is at work in {root}: the end of the active segments cannot be judged")
    total = sum(log_bytes(files, directory) for directory in directories)
    with output.progress("checking", total, "bytes") as bar:
        check = DirectoryCheck(
            files, root, findings, is_running=is_running, opens_records=options.records, progress=bar.advance
        )
        if is_whole:
            check.root_files()
        for directory in directories:
            check.partition(directory)
    shown = f"{count_text(len(directories), 'partition')}, {total:,} bytes"
    show_findings(output, findings, path, shown, is_running=is_running)
    return Exit.FAILED if findings.is_wrong else Exit.OK
