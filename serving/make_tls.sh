#!/usr/bin/env bash
# Makes keys, certificates and a password in a folder (by default tls/ beside this file):
#   ca.crt, ca.key            your own certificate authority; give ca.crt to clients
#   server.crt, server.key    the server's certificate for the names that you give, and its key
#   passwords                 one user for nginx; the script prints the random password
#   ssl.config                server.key and server.crt in TensorFlow Serving's format
# The script keeps files that exist. Remove a file to make it again.
#
#   serving/make_tls.sh translate.example.org [NAME ...]
#   TLS_DIR=/somewhere serving/make_tls.sh localhost
set -euo pipefail
umask 077
[ $# -gt 0 ] || { echo "give the names that clients use: make_tls.sh NAME ..." >&2; exit 1; }

folder=${TLS_DIR:-$(dirname "$0")/tls}
mkdir -p "$folder"
cd "$folder"

names=""
for name in "$@"; do
  case $name in
    *[!0-9.]*) names+=",DNS:$name" ;;
    *) names+=",IP:$name" ;;
  esac
done
names=${names#,}

if [ ! -e ca.crt ]; then
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 \
    -keyout ca.key -out ca.crt -subj "/CN=translator's own authority" \
    -addext keyUsage=critical,keyCertSign,cRLSign 2>/dev/null
fi
if [ ! -e server.crt ]; then
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes \
    -keyout server.key -out server.csr -subj "/CN=$1" 2>/dev/null
  openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -days 365 -out server.crt \
    -extfile <(printf 'subjectAltName=%s\nextendedKeyUsage=serverAuth\n' "$names") \
    2>/dev/null
  rm server.csr
  rm -f ssl.config
fi
if [ ! -e passwords ]; then
  password=$(openssl rand -base64 18)
  printf 'translator:%s\n' "$(openssl passwd -6 "$password")" > passwords
  echo "user: translator"
  echo "password: $password"
fi
# An SSLConfig (tensorflow_serving/config/ssl_config.proto) contains the files' text.
if [ ! -e ssl.config ]; then
  {
    printf 'server_key: "%s"\n' "$(awk '{printf "%s\\n", $0}' server.key)"
    printf 'server_cert: "%s"\n' "$(awk '{printf "%s\\n", $0}' server.crt)"
    printf 'client_verify: false\n'
  } > ssl.config
fi
