"""The checks of `gpumon doctor --prometheus`."""

from __future__ import annotations

import os

from gpumon.errors import GpumonError, UsageError
from gpumon.services.connectivity import ABSENT, LIMITED, OK, Check
from gpumon.services.prometheus import families_of, server_for
from gpumon.services.this_site import this_site


def examine_server(url: str | None) -> tuple[list[Check], str]:
    """What the server has, and the section of the site's file for it; "" where it has nothing.

    `url`: None for the site's. Raises UsageError where there is none, or it is not valid.
    """
    from gpumon.prometheus.survey import Survey, site_section

    site = this_site()
    server = server_for(site, url, os.environ)
    if server is None:
        raise UsageError("no Prometheus server is known; give its URL")
    families = families_of(site.prometheus)
    try:
        found = list(Survey(server, families).found())
    except GpumonError as error:
        return [Check("Prometheus", ABSENT, str(error))], ""
    checks = [Check("Prometheus", OK, f"{server.host} answers ({server.queries} queries)")]
    for each in found:
        parts = [f"{each.metrics} of {len({m.name for m in each.family.metrics})} metrics"]
        parts.append(f"{each.nodes} node{'s' if each.nodes != 1 else ''}")
        parts.append(f"every {each.interval_s:g} s" if each.interval_s else "interval unknown")
        if each.oldest_d:
            parts.append(f"samples up to {each.oldest_d} d old")
        parts.append(f"jobs by {each.job}" if each.job else "no series names a job now")
        result = OK if each.job else LIMITED
        checks.append(Check(f"  {each.family.name}", result, ", ".join(parts)))
    here = {each.family.name for each in found}
    absent = [family.name for family in families if family.name not in here]
    if absent:
        checks.append(Check("  not found", ABSENT, " ".join(absent)))
    if not any(each.family.has_devices for each in found):
        why = "no GPU metrics of a known family; declare yours as [[family]] (docs/prometheus.md)"
        checks.append(Check("  GPUs", LIMITED, why))
    return checks, site_section(server.url, found) if found else ""
