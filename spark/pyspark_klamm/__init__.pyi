from pyspark_klamm.data_source import DefaultSource as DefaultSource
from pyspark_klamm.data_source import KlammDataSource as KlammDataSource
from pyspark_klamm.local import local_session as local_session
from pyspark_klamm.payloads import from_klamm as from_klamm
from pyspark_klamm.progress import offsets_behind_latest as offsets_behind_latest
from pyspark_klamm.progress import source_metrics as source_metrics
