"""Managed REST catalogs that are known by their address, and what each does otherwise than Iceberg's REST protocol has it.

Only what must be known before a request is here: refusals are reported in the service's own words.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Service:
    """A managed catalog."""

    name: str
    #: What its addresses contain, as a regular expression.
    address: str
    #: Whether names are of lower-case letters, digits and underscores, in namespaces of one level.
    lowers_names: bool = False
    #: Whether names that differ in letter case alone are names of one table.
    ignores_case: bool = False
    #: Whether a new table must have a location.
    needs_location: bool = False
    #: Actions of table maintenance that the service does by itself, as `maintenance.skip` names them.
    maintains: tuple[str, ...] = ()


_ALL = ("compact", "expire", "orphans")
SERVICES = (
    Service("Amazon S3 Tables", r"//s3tables\.[^/]+\.amazonaws\.com", lowers_names=True, maintains=_ALL),
    Service("AWS Glue", r"//glue\.[^/]+\.amazonaws\.com", lowers_names=True, needs_location=True),
    Service("Unity Catalog", r"/api/2\.1/unity-catalog/iceberg", ignores_case=True, maintains=_ALL),
    Service("Alibaba Cloud OSS Tables", r"\.oss-tables\.aliyuncs\.com", lowers_names=True, maintains=_ALL),
)
"""Services by address; Polaris, Lakekeeper and Gravitino have none of their own."""


def service_at(uri: str) -> Service | None:
    """Returns the service at this address; None for another one."""
    return next((service for service in SERVICES if re.search(service.address, uri)), None)
