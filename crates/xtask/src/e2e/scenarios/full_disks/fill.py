"""Makes files (f0, f1, ...) or folders (d0, d1, ...) until that fails; each that was taken is noted as acknowledged.

Arguments: the folder to work in, the file of notes, how many at most, bytes of a file (0: folders).
"""
import os
import sys

top, notes, most, size = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
acknowledged = os.open(notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)


def make_file(path, number):
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        os.write(file, (f"{number}\n".encode() * size)[:size])
    finally:
        os.close(file)


for number in range(most):
    name = f"f{number}" if size else f"d{number}"
    make_file(f"{top}/{name}", number) if size else os.mkdir(f"{top}/{name}")
    os.write(acknowledged, f"{name}\n".encode())
