"""An archive's directory: the log that names the files of each version, and the Parquet files for Spark and others.

    ROOT/_log/                                    `archive_log.py`
    ROOT/_staging/                                files that are written, but not published yet
    ROOT/topic=orders/date=2026-01-31/hour=09/    `*.parquet` with the columns of IN_FILES

The archiver commits a version by renaming its log file to a name that must not exist yet. The rename is atomic, and
only one of several archivers can succeed. So the file system must have an atomic rename that does not overwrite (HDFS,
a local disk). For an object store, the Hadoop connector must have one. Files of failed batches, which no version names,
are not part of the archive. `sweep` deletes them.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from klamm_pipelines.archive_log import (
    CHECKPOINT_INTERVAL,
    ArchiveChange,
    ArchiveConflictError,
    ArchiveContents,
    ArchivedFile,
    decode_change,
    decode_contents,
    encode_change,
    encode_contents,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

IN_FILES: Final = (
    "key BINARY, value BINARY, partition INT, offset LONG, timestamp TIMESTAMP, timestampType INT,"
    " headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
SCHEMA: Final = f"{IN_FILES}, topic STRING, date STRING, hour STRING"
_PARTITIONING: Final = ("topic", "date", "hour")
_ATTEMPTS: Final = 10
_VERSION: Final = re.compile(r"(\d{20})(\.checkpoint)?\.json")


class Published(NamedTuple):
    """The files that were written and moved to their place."""

    files: tuple[ArchivedFile, ...]
    ends: Mapping[tuple[str, int], int]
    """The offset after the last one in the files, by topic and partition."""


class ArchiveStore:
    """One archive, on any file system that Hadoop knows. Runs on the driver."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self._spark = spark
        jvm: Any = spark._jvm
        self._jvm = jvm
        root_path = jvm.org.apache.hadoop.fs.Path(root)
        self._fs = root_path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
        self._is_local = self._fs.getUri().getScheme() == "file"
        self.root = str(self._fs.makeQualified(root_path).toString()).rstrip("/")

    # --- the log

    def contents(self) -> ArchiveContents:
        """Returns the contents of the latest version. Raises FileNotFoundError if the log is damaged."""
        for _ in range(_ATTEMPTS):
            with contextlib.suppress(FileNotFoundError):  # swept after it was listed: a later checkpoint exists
                return self._load()
        raise FileNotFoundError(f"{self.root}/_log: versions are missing")

    def _load(self) -> ArchiveContents:
        versions, checkpoints = self._log_files()
        contents = ArchiveContents()
        if checkpoints:
            contents = decode_contents(self._read(f"_log/{max(checkpoints):020}.checkpoint.json"))
        for version in sorted(number for number in versions if number > contents.version):
            if version != contents.version + 1:
                raise FileNotFoundError(version)
            contents = contents.after(decode_change(self._read(f"_log/{version:020}.json")))
        return contents

    def commit(self, change: ArchiveChange) -> ArchiveContents:
        """Stores the change as the next version and returns its contents. Raises ArchiveConflictError if another change
        conflicts."""
        for _ in range(_ATTEMPTS):
            before = self.contents()
            after = before.after(change)
            if self._create(f"_log/{after.version:020}.json", encode_change(change)):
                if after.version % CHECKPOINT_INTERVAL == 0:
                    self._create(f"_log/{after.version:020}.checkpoint.json", encode_contents(after))
                return after
        raise ArchiveConflictError(f"{self.root}: other writers committed first at every attempt")

    # --- files

    def publish(self, rows: DataFrame, topic_ids: Mapping[str, str]) -> Published:
        """Writes rows of SCHEMA to files in the archive's directories. The files belong to the archive once a change
        names them."""
        from pyspark.sql import functions as F

        name = uuid.uuid4().hex
        staging = f"{self.root}/_staging/{name}"
        try:
            rows.write.partitionBy(*_PARTITIONING).parquet(staging)
            sizes = self._parquet_files(staging)
            if not sizes:
                return Published((), {})
            found = (
                self._spark.read.schema(SCHEMA).parquet(staging)
                .groupBy(F.input_file_name().alias("file"), "topic", "date", "hour", "partition")
                .agg(F.count("offset").alias("rows"), (F.max("offset") + 1).alias("end"))
                .collect()
            )  # fmt: skip
            counts: dict[str, int] = {}
            ends: dict[tuple[str, int], int] = {}
            for row in found:
                path = pathlib.PurePosixPath(row.file)
                relative = str(path.relative_to(path.parents[3]))
                counts[relative] = counts.get(relative, 0) + row.rows
                ends[row.topic, row.partition] = max(row.end, ends.get((row.topic, row.partition), 0))
            files = []
            for number, (relative, size_bytes) in enumerate(sorted(sizes.items())):
                file = _described(relative, f"{name}-{number:05}", topic_ids, counts[relative], size_bytes)
                self._move(f"{staging}/{relative}", file.path)
                files.append(file)
            return Published(tuple(files), ends)
        finally:
            self._delete(f"_staging/{name}")

    def read(self, files: Iterable[ArchivedFile]) -> DataFrame:
        """Returns the rows of the files, with the columns of SCHEMA."""
        paths = [f"{self.root}/{file.path}" for file in files]
        reader = self._spark.read.schema(SCHEMA).option("basePath", self.root)
        return reader.parquet(*paths) if paths else self._spark.createDataFrame([], SCHEMA)

    def sweep(self, now_ms: int, retain_ms: int) -> int:
        """Deletes the files that left the archive at least `retain_ms` ago. Returns the number of deleted files.

        It also deletes files of that age that no version names. A reader of an older version must not take longer than
        `retain_ms`, nor may an archiver between writing its files and committing its change."""
        contents = self.contents()
        old = [path for path, when in contents.removed.items() if when <= now_ms - retain_ms]
        named = contents.files.keys() | contents.removed.keys()
        orphans = [path for path in self._parquet_files(self.root, until_ms=now_ms - retain_ms) if path not in named]
        orphans += self._staged(until_ms=now_ms - retain_ms)
        for path in [*old, *orphans]:
            self._delete(path)
        if old:
            self.commit(ArchiveChange(time_ms=now_ms, forget=tuple(old)))
        versions, checkpoints = self._log_files()
        for version in versions | checkpoints:
            if checkpoints and version < max(checkpoints) - CHECKPOINT_INTERVAL:
                self._delete(f"_log/{version:020}.json")
                self._delete(f"_log/{version:020}.checkpoint.json")
        return len(old) + len(orphans)

    def _move(self, source: str, path: str) -> None:
        target = self._path(f"{self.root}/{path}")
        self._fs.mkdirs(target.getParent())
        if not self._fs.rename(self._path(source), target):
            raise OSError(f"{self.root}/{path} could not be written")

    def _parquet_files(self, directory: str, *, until_ms: int | None = None) -> dict[str, int]:
        """Returns the sizes of Parquet files by path below `directory`. Leaves out files that changed after `until_ms`,
        and directories that begin with an underscore."""
        found = {}
        listing = self._fs.listFiles(self._path(directory), True)
        prefix = f"{self._fs.makeQualified(self._path(directory)).toString()}/"
        while listing.hasNext():
            status = listing.next()
            relative = str(status.getPath().toString()).removeprefix(prefix)
            is_old = until_ms is None or status.getModificationTime() <= until_ms
            if relative.endswith(".parquet") and not relative.startswith("_") and is_old:
                found[relative] = int(status.getLen())
        return found

    def _staged(self, *, until_ms: int) -> list[str]:
        """Returns the staged files that were not changed after `until_ms`."""
        directory = self._path(f"{self.root}/_staging")
        found = self._fs.listStatus(directory) if self._fs.exists(directory) else ()
        return [
            f"_staging/{status.getPath().getName()}" for status in found if status.getModificationTime() <= until_ms
        ]

    def _log_files(self) -> tuple[set[int], set[int]]:
        """Returns the numbers of the versions that have a change file, and of those that have a checkpoint file."""
        directory = self._path(f"{self.root}/_log")
        if not self._fs.exists(directory):
            return set(), set()
        matches = [_VERSION.fullmatch(str(status.getPath().getName())) for status in self._fs.listStatus(directory)]
        found = [match for match in matches if match]
        return (
            {int(match[1]) for match in found if not match[2]},
            {int(match[1]) for match in found if match[2]},
        )

    def _create(self, name: str, text: str) -> bool:
        """Creates the file with the whole text in one step. Returns False if the file exists already."""
        scratch = f"{self.root}/_staging/{uuid.uuid4().hex}"
        stream = self._fs.create(self._path(scratch), True)
        stream.write(bytearray(text.encode()))
        stream.close()
        self._fs.mkdirs(self._path(f"{self.root}/_log"))
        try:
            return self._rename(scratch, f"{self.root}/{name}")
        finally:
            self._fs.delete(self._path(scratch), False)

    def _rename(self, source: str, target: str) -> bool:
        if self._is_local:
            # Hadoop's local rename checks for the target before it renames, so that two writers might both succeed.
            try:
                os.link(source.removeprefix("file:"), target.removeprefix("file:"))
            except FileExistsError:
                return False
            return True
        fs = self._jvm.org.apache.hadoop.fs
        context = fs.FileContext.getFileContext(self._fs.getUri(), self._fs.getConf())
        how = self._spark.sparkContext._gateway.new_array(fs.Options.Rename, 1)
        how[0] = fs.Options.Rename.NONE
        try:
            context.rename(self._path(source), self._path(target), how)
        except Exception as error:
            if "FileAlreadyExistsException" in str(error):
                return False
            raise
        return True

    def _read(self, name: str) -> str:
        path = self._path(f"{self.root}/{name}")
        if not self._fs.exists(path):
            raise FileNotFoundError(name)
        stream = self._fs.open(path)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def _delete(self, name: str) -> None:
        self._fs.delete(self._path(f"{self.root}/{name}"), True)

    @property
    def _path(self) -> Callable[[str], Any]:
        return self._jvm.org.apache.hadoop.fs.Path  # type: ignore[no-any-return]


def read_archive(spark: SparkSession, root: str) -> DataFrame:
    """Returns all rows of the archive's latest version, with the columns of SCHEMA."""
    store = ArchiveStore(spark, root)
    return store.read(store.contents().files.values())


def _described(relative: str, name: str, topic_ids: Mapping[str, str], rows: int, size_bytes: int) -> ArchivedFile:
    """Returns the description of the file staged at `relative`, with the path that it gets when it is published."""
    parent = pathlib.PurePosixPath(relative).parent
    topic, date, hour = (part.partition("=")[2] for part in parent.parts)
    return ArchivedFile(
        path=f"{parent}/{name}.parquet",
        topic=topic,
        topic_id=topic_ids[topic],
        date=date,
        hour=hour,
        rows=rows,
        size_bytes=size_bytes,
    )
