from klamm.admin.decode.cluster import cluster_description as cluster_description
from klamm.admin.decode.configs import config_entry as config_entry
from klamm.admin.decode.configs import config_resource as config_resource
from klamm.admin.decode.groups import (
    consumer_group_description as consumer_group_description,
)
from klamm.admin.decode.groups import (
    group_description as group_description,
)
from klamm.admin.decode.groups import (
    group_lag as group_lag,
)
from klamm.admin.decode.groups import (
    group_listing as group_listing,
)
from klamm.admin.decode.ledgers import ledger_listing as ledger_listing
from klamm.admin.decode.log_dirs import log_dir as log_dir
from klamm.admin.decode.quorum import quorum_description as quorum_description
from klamm.admin.decode.quotas import quota_entity as quota_entity
from klamm.admin.decode.replicas import partition_reassignment as partition_reassignment
from klamm.admin.decode.scrubs import scrub as scrub
from klamm.admin.decode.topics import (
    created_topic as created_topic,
)
from klamm.admin.decode.topics import (
    topic_description as topic_description,
)
from klamm.admin.decode.topics import (
    topic_view as topic_view,
)
from klamm.admin.decode.transactions import (
    producer as producer,
)
from klamm.admin.decode.transactions import (
    transaction_description as transaction_description,
)
from klamm.admin.decode.transactions import (
    transaction_listing as transaction_listing,
)
from klamm.admin.decode.users import user_scram_credentials as user_scram_credentials
