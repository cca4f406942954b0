"""Containers: what the project's manifests say of the shared memory that the program will find."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dlcheck.model.project import Project

# Where projects say how their containers are made and started, seen from the root.
_MANIFESTS = (
    "Dockerfile", "docker/Dockerfile", ".docker/Dockerfile", "docker-compose.yml", "docker-compose.yaml",
    "compose.yml", "compose.yaml", "docker/docker-compose.yml", "docker/compose.yaml", "k8s/job.yaml", "k8s/train.yaml",
    "job.yaml", "deployment.yaml", "Containerfile",
)  # fmt: skip
# Where else the size may be given: the command is written down somewhere.
_COMMANDS = (
    "README.md", "README.rst", "README", "Makefile", "makefile", "justfile", "run.sh", "docker/run.sh", "docker_run.sh",
    "run_docker.sh", "scripts/docker_run.sh", ".devcontainer/devcontainer.json", "docker/README.md", "docker.sh",
)  # fmt: skip
_SHARED = re.compile(rb"shm[-_]?size|ipc[=:\s\"']+host|/dev/shm|medium:\s*[\"']?Memory|--ipc\b", re.IGNORECASE)


def leaves_shared_memory_small(project: Project) -> bool:
    """Whether the project runs in a container, and nothing that it says raises the 64 MiB of ``/dev/shm``."""
    manifests = list(_present(project, _MANIFESTS))
    return bool(manifests) and not any(_SHARED.search(data) for data in (*manifests, *_present(project, _COMMANDS)))


def _present(project: Project, names: tuple[str, ...]) -> Iterator[bytes]:
    workspace = project.workspace
    for name in names:
        file = os.path.join(workspace.root, *name.split("/"))
        data = workspace.read(file) if workspace.exists(file) else None
        if data is not None:
            yield data
