"""A certificate that nobody trusts yet: made here, for servers on this machine."""

import ssl
import subprocess
from pathlib import Path
from shutil import which
from typing import NamedTuple

import pytest

NAMES = "subjectAltName=DNS:localhost,DNS:model.test,IP:127.0.0.1"


class Certificate(NamedTuple):
    """A certificate's file, and the TLS context with which a server presents it."""

    file: Path
    server: ssl.SSLContext


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """A certificate of `localhost` and `model.test` that is its own authority."""
    if not which("openssl"):
        pytest.skip("openssl makes the certificate")
    place = tmp_path_factory.mktemp("tls")
    key, file = place / "key.pem", place / "certificate.pem"
    made = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    named = ["-subj", "/CN=localhost", "-addext", NAMES, "-keyout", str(key), "-out", str(file)]
    subprocess.run(["openssl", *made, *named], check=True, capture_output=True)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(file, key)
    return Certificate(file, context)
