from klamm.admin.async_admin import AsyncAdmin as AsyncAdmin
from klamm.admin.sync_admin import Admin as Admin
from klamm.admin.types import *  # noqa: F403 - the package has all its types
