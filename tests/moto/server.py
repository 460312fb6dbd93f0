"""moto's server with what its KMS lacks: signatures of digests, as AWS makes them with `MessageType` DIGEST. moto
itself hashes the digest once more.

python server.py PORT
"""

import sys

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed
from moto.kms import responses, utils
from moto.server import main

sign = responses.KmsResponse.sign


def sign_digest(self):
    assert self._get_param("MessageType") == "DIGEST", "only digests are signed here"
    return sign(self)


def ecdsa(self, message, signing_algorithm):
    utils.validate_signing_algorithm(signing_algorithm, self.valid_signing_algorithms)
    assert len(message) == 32, "a digest has 32 bytes"
    return self.private_key.sign(message, ec.ECDSA(Prehashed(hashes.SHA256())))


responses.KmsResponse.sign = sign_digest
utils.ECDSAPrivateKey.sign = ecdsa
main(["-H", "127.0.0.1", "-p", sys.argv[1]])
