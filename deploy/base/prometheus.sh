#!/bin/sh
# Makes the image `klamm-prometheus` of Debian's packages: compose.yaml's PROMETHEUS_IMAGE where no image can be pulled.
# Needs what build.sh needs.
set -eu
"$(dirname "$0")/build.sh" klamm-prometheus-base prometheus
docker build --quiet --tag klamm-prometheus - <<'END'
FROM klamm-prometheus-base
RUN install --directory --owner=nobody --group=nogroup /prometheus
USER nobody
END
