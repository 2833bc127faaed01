"""The alert rules as the Prometheus Operator takes them: a copy of deploy/monitoring/alerts.yaml.

``python -m tests.k8s.prometheus_rule`` writes it. kustomize cannot make it, as it reads rules into
ConfigMaps only.
"""

from __future__ import annotations

from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
RULES = REPOSITORY / "deploy/monitoring/alerts.yaml"
COPY = REPOSITORY / "k8s/components/monitoring/prometheus-rule.yaml"

HEAD = """\
# A copy of deploy/monitoring/alerts.yaml; change that, then `python -m tests.k8s.prometheus_rule`.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: specmesh
  labels:
    app.kubernetes.io/part-of: specmesh
spec:
"""


def prometheus_rule() -> str:
    """The PrometheusRule with the rules as they are."""
    rules = RULES.read_text()
    lines = rules[rules.index("groups:") :].splitlines()
    return HEAD + "".join(f"  {line}".rstrip() + "\n" for line in lines)


if __name__ == "__main__":
    COPY.write_text(prometheus_rule())
