"""A file system whose server answers nothing: who asks it can then not even be killed.

Needs root, and FUSE in the kernel. `python tests/probe/hung.py FOLDER` mounts it there, prints a
line, and ends with its input.
"""

from __future__ import annotations

import ctypes
import os
import select
import struct
import sys

_INIT = 26


def main(folder: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40700,user_id={os.getuid()},group_id=0".encode()
    if libc.mount(b"hung", folder.encode(), b"fuse", 0, options):
        raise OSError(ctypes.get_errno(), "mount")
    print("mounted", flush=True)
    try:
        while device in (ready := select.select([device, 0], [], [])[0]) and 0 not in ready:
            request = os.read(device, 1 << 20)
            _, what, unique = struct.unpack_from("<IIQ", request)
            if what == _INIT:
                ahead = struct.unpack_from("<IIII", request, 40)[2]
                told = struct.pack("<IIIIHHIIHHI", 7, 31, ahead, 0, 12, 10, 4096, 1, 0, 0, 0)
                os.write(device, struct.pack("<IiQ", 16 + 64, 0, unique) + told.ljust(64, b"\0"))
    finally:
        libc.umount2(folder.encode(), 2)  # MNT_DETACH; with the device closed all requests fail


if __name__ == "__main__":
    main(sys.argv[1])
