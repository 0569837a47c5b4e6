"""Makes the built-in encoder's weights of those of all-MiniLM-L6-v2.

    pip install numpy
    python3 quantize.py MODEL_DIRECTORY/model.safetensors model.safetensors

Every matrix is kept in four bits a number: groups of 32 neighbours share a scale of 16 bits, the one of
33 that errs the least; a number is between -8 and 7, kept plus eight, two in a byte, the first in the
lower half. Everything else stays as it is. The same input gives the same bytes.
"""

import json
import struct
import sys

import numpy as np

GROUP = 32
UNUSED = ("pooler.", "embeddings.position_ids")


def read(path):
    with open(path, "rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
        data = file.read()
    for name, entry in sorted(header.items()):
        if name != "__metadata__" and not name.startswith(UNUSED):
            assert entry["dtype"] == "F32", name
            start, end = entry["data_offsets"]
            yield name, np.frombuffer(data[start:end], "<f4").reshape(entry["shape"])


def quantize(matrix):
    groups = matrix.reshape(-1, GROUP)
    largest = groups[np.arange(len(groups)), np.abs(groups).argmax(1)][:, None]
    best, scales, numbers = np.full(len(groups), np.inf), None, None
    for part in np.linspace(6.4, 9.6, 33):
        scale = (largest / -part).astype(np.float16)
        wide = np.where(scale == 0, 1, scale).astype(np.float32)
        rounded = np.clip(np.rint(groups / wide), -8, 7)
        error = ((rounded * wide - groups) ** 2).sum(1)
        if scales is None:
            scales, numbers = scale.copy(), rounded.copy()
        better = error < best
        best[better] = error[better]
        scales[better], numbers[better] = scale[better], rounded[better]
    halves = (numbers + 8).astype(np.uint8).reshape(-1, 2)
    packed = (halves[:, 0] | (halves[:, 1] << 4)).reshape(matrix.shape[0], matrix.shape[1] // 2)
    return packed, scales.reshape(matrix.shape[0], -1)


def main(source, target):
    tensors = {}
    for name, tensor in read(source):
        if tensor.ndim == 2:
            packed, scales = quantize(tensor)
            tensors[f"{name}.q4"], tensors[f"{name}.scale"] = ("U8", packed), ("F16", scales)
        else:
            tensors[name] = ("F32", tensor)
    header, at = {}, 0
    for name, (dtype, tensor) in tensors.items():
        header[name] = {"dtype": dtype, "shape": tensor.shape, "data_offsets": [at, at + tensor.nbytes]}
        at += tensor.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(target, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, tensor in tensors.values():
            file.write(tensor.tobytes())


main(*sys.argv[1:])
