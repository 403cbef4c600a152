"""`klamm log dump`: writes all lines for the named files. Keeps no lines in memory, because a dump may be as long as
its files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from klamm_cli.log_dump import line
from klamm_cli.log_dump.batches import Decoder, dump_log
from klamm_cli.log_dump.decoders import decode_offsets, decode_transactions, raw
from klamm_cli.log_dump.files import EXPECTED, DataFile, FileKind, data_files, is_newest_segment
from klamm_cli.log_dump.indexes import dump_offset_index, dump_time_index, dump_transaction_index
from klamm_cli.log_dump.line import DumpLine, LineKind
from klamm_cli.log_dump.metadata_log import dump_metadata_log
from klamm_cli.log_dump.small_files import (
    dump_epochs_checkpoint,
    dump_offsets_checkpoint,
    dump_properties,
    dump_snapshot,
)
from klamm_server.runtime.disk import Disk

_INDEXES = {
    FileKind.OFFSET_INDEX: dump_offset_index,
    FileKind.TIME_INDEX: dump_time_index,
    FileKind.TRANSACTION_INDEX: dump_transaction_index,
}
_SMALL: dict[FileKind, Callable[[Disk, str], Iterator[DumpLine]]] = {
    FileKind.PROPERTIES: dump_properties,
    FileKind.EPOCHS_CHECKPOINT: dump_epochs_checkpoint,
    FileKind.OFFSETS_CHECKPOINT: dump_offsets_checkpoint,
    FileKind.PRODUCER_SNAPSHOT: dump_snapshot,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpOptions:
    """The user's choice of what to show besides batches and index entries."""

    records: bool = False
    offsets: bool = False
    """Whether to decode the records as records of `__consumer_offsets`."""
    transactions: bool = False
    """Whether to decode the records as records of `__transaction_state`."""
    verify: bool = False
    """Whether to compare indexes with their logs."""

    @property
    def decoder(self) -> Decoder | None:
        if self.offsets:
            return decode_offsets
        if self.transactions:
            return decode_transactions
        return raw if self.records else None


def dump(paths: Iterable[str], options: DumpOptions) -> Iterator[DumpLine]:
    """Yields the lines for files, and for all files in directories. Yields a line of damage for a file that cannot be
    read."""
    for path in paths:
        found = False
        try:
            for file in data_files(path):
                found = True
                yield line.file(file.path)
                yield from _dump_file(file, options)
        except OSError as error:
            yield line.damage(path, f"cannot be read: {error.strerror}")
            continue
        if not found:
            yield line.damage(path, f"there is nothing that can be dumped; expected {EXPECTED}")


def _dump_file(file: DataFile, options: DumpOptions) -> Iterator[DumpLine]:
    try:
        yield from _lines(Disk(), file, options)
    except FileNotFoundError:
        yield line.note(file.path, "is gone: its server removed or renamed it meanwhile")
    except OSError as error:
        yield line.damage(file.path, f"cannot be read: {error.strerror}")


def _lines(disk: Disk, file: DataFile, options: DumpOptions) -> Iterator[DumpLine]:
    if file.kind is FileKind.METADATA_LOG:
        return dump_metadata_log(file.path)
    if file.kind is FileKind.LOG:
        is_newest = is_newest_segment(file)
        return dump_log(disk, file.path, base_offset=file.base_offset, is_newest=is_newest, decoder=options.decoder)
    if file.kind in _INDEXES:
        log_path = file.log_path if options.verify else None
        return _INDEXES[file.kind](disk, file.path, base_offset=file.base_offset, log_path=log_path)
    return _SMALL[file.kind](disk, file.path)


def run(paths: Iterable[str], options: DumpOptions, *, as_json: bool, write: Callable[[str], object]) -> bool:
    """Writes all lines, each with its line end. Returns True if nothing was damaged."""
    sound = True
    for dump_line in dump(paths, options):
        sound = sound and dump_line.kind is not LineKind.DAMAGE
        write((dump_line.to_json() if as_json else dump_line.to_text()) + "\n")
    return sound
