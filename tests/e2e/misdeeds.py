"""Scripts that do what no job should."""

LEAVES = """
import os, signal, sys
code, place = int(sys.argv[1]), sys.argv[2]
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        if code == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for stream in range(3):
            os.dup2(os.open(os.devnull, os.O_RDWR), stream)
        open(place, "w").close()
        while True:
            signal.pause()
    os._exit(0)
os.wait()
while not os.path.exists(place):
    os.sched_yield()
print("the daemon is there", flush=True)
sys.exit(code)
"""
SPIES = """
import os, re
wanted = re.compile(b"gl_" + b"[a-z]+_[A-Za-z0-9_-]+|planted" + b"-secret|GANGLINE_" + b"TOKEN=[^\\\\0]*")

def look(place, read):
    try:
        found = wanted.findall(read())
    except OSError:
        return
    if found:
        print("found in", place, sorted({each.decode() for each in found}), flush=True)

def content(path):
    with open(path, "rb") as file:
        return file.read(1 << 20)

def memory(pid):
    found = []
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as mem:
        for line in maps:
            first, last = (int(each, 16) for each in line.split()[0].split("-"))
            try:
                mem.seek(first)
                found.append(mem.read(last - first if "rw" in line.split()[1] else 0))
            except (OSError, OverflowError):
                pass
    return b"".join(found)

for pid in filter(str.isdigit, os.listdir("/proc")):
    if int(pid) == os.getpid():
        continue
    for name in ("environ", "cmdline"):
        look(f"{name} of {pid}", lambda: content(f"/proc/{pid}/{name}"))
    look(f"memory of {pid}", lambda: memory(pid))
    try:
        handles = [f"/proc/{pid}/fd/{handle}" for handle in os.listdir(f"/proc/{pid}/fd")]
    except OSError:
        continue
    for handle in filter(os.path.isfile, handles):
        look(handle, lambda: content(handle))
"""
LINKS = """
import os
for folder in ("output/nested", "output/checkpoint-5", "elsewhere"):
    os.makedirs(folder)
for place in ("output/real", "output/nested/real", "elsewhere/real"):
    with open(place, "w") as file:
        file.write("real")
os.symlink("real", "output/nested/near")
for place in ("output", "output/nested", "elsewhere"):
    os.symlink("/etc/passwd", f"{place}/passwd")
os.symlink("/etc/passwd", "output/checkpoint-5/pytorch_model.bin")
os.symlink("/etc", "output/nested/etc")
os.symlink("/etc", "linked")
"""
LINKS_ALL = """
import os
os.rmdir("output")
os.symlink("/etc", "output")
"""
FILLS = """
import sys
try:
    with open("output/filler", "wb", 0) as file:
        while True:
            file.write(bytes(1 << 20))
except OSError:
    print("x" * 100_000, flush=True)
    if sys.argv[1:] == ["fail"]:
        raise
"""
CONNECTS = """
import socket, sys
socket.create_connection((sys.argv[1], int(sys.argv[2])), 5).close()
open("output/reached", "w").close()
"""
