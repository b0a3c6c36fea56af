"""Makes files until that fails; each that was closed without an error is noted as acknowledged.

Arguments: the folder to work in, the file of notes. Another thread looks at everything meanwhile.
"""
import os
import sys
import threading

top, notes = sys.argv[1:]
os.mkdir(top)


def look():
    while True:
        for entry in os.scandir(top):
            entry.stat()


threading.Thread(target=look, daemon=True).start()
acknowledged = os.open(notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
number = 0
while True:
    path = f"{top}/{number}"
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    os.write(file, f"{number}\n".encode() * 500)
    os.close(file)
    os.write(acknowledged, f"{os.path.basename(top)}/{number}\n".encode())
    number += 1
