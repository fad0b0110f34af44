# Remove from the folder of packages of an image what its program never loads: sh slim.sh FOLDER [CUDA]
set -eu
cd "$1"
CUDA="${2:-}"

# The second client of Kubernetes, and what nothing else needs. Of the first no more than its connections are used, not its classes for
# each kind of request and object; and as it is comments for the most part, the code alone is kept.
if [ -d kubernetes ]; then
    rm -rf kubernetes/aio aiohttp* aiosignal* aiohappyeyeballs* frozenlist* multidict* propcache* yarl*
    find kubernetes/client/api kubernetes/client/models -name '*.py' ! -name __init__.py -delete
    python3 -m compileall -q -b -o 2 kubernetes
    find kubernetes -name '*.py' -delete
fi

# Amazon's services, but for storage and what gives a machine its key.
if [ -d botocore ]; then
    find botocore/data -mindepth 1 -maxdepth 1 -type d ! -name s3 ! -name sts ! -name sso ! -name sso-oidc ! -name signin -exec rm -rf {} +
fi

# Kernels for other generations of CUDA, and for other cards.
if [ -d bitsandbytes ]; then
    find bitsandbytes -name 'libbitsandbytes_*' ! -name '*_cpu.so' ! -name "*_cuda${CUDA#cu}.so" -delete
fi

# Arrow's server, its clients of buckets, and its headers: data sets are read by Lance.
rm -rf pyarrow/include pyarrow/src pyarrow/*_flight* pyarrow/_s3fs* pyarrow/_gcsfs* pyarrow/_azurefs* pyarrow/libarrow_s3*

# Time zones that the system has; packages' tests, headers and sources in C; symbols for debuggers.
if [ -d /usr/share/zoneinfo/Europe ]; then rm -rf tzdata; fi
find . -type d -name tests ! -path './torch/*' -prune -exec rm -rf {} +
find . -type f ! -path './torch/*' ! -path './triton/*' \
    \( -name '*.pyi' -o -name '*.pyx' -o -name '*.pxd' -o -name '*.pxi' -o -name '*.c' -o -name '*.h' \) -delete
if command -v strip > /dev/null; then
    find . \( -name '*.so' -o -name '*.so.*' \) -exec strip --strip-unneeded {} +
fi
