#!/bin/sh
# Makes the certificates of the tests anew, valid from 2020 to 2120. They are in the repository so that every run sees
# the same bytes; the keys protect nothing. RSA: its signatures have one length, so simulated runs repeat.
set -eu
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
touch "$work/index"
cat >"$work/config" <<END
[ca]
default_ca = this
[this]
database = $work/index
new_certs_dir = $work
rand_serial = yes
unique_subject = no
default_md = sha256
policy = any
[any]
organizationName = optional
commonName = supplied
END

signed() { # name, subject, arguments of openssl ca; the extensions come from standard input
    cat >"$work/extensions"
    openssl req -newkey rsa:2048 -nodes -sha256 -subj "/O=semel tests/CN=$2" -keyout "$1.key" -out "$work/request" \
        2>/dev/null
    name=$1
    shift 2
    openssl ca -batch -notext -config "$work/config" -startdate 20200101000000Z -enddate 21200101000000Z \
        -in "$work/request" -out "$name.pem" -extfile "$work/extensions" "$@" 2>/dev/null
}

authority() { # name, subject
    printf 'basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign,cRLSign\nsubjectKeyIdentifier=hash\n' |
        signed "$1" "$2" -selfsign -keyfile "$1.key"
}

certificate() { # name, subject, extended key usage, subject alternative names
    {
        printf 'basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature,keyEncipherment\n'
        printf 'extendedKeyUsage=%s\nsubjectAltName=%s\nauthorityKeyIdentifier=keyid\n' "$3" "$4"
    } | signed "$1" "$2" -cert ca.pem -keyfile ca.key
}

authority ca "test authority"
authority stranger "another authority"
certificate broker "broker" serverAuth "DNS:localhost,DNS:broker,DNS:node,IP:127.0.0.1"
certificate client "client" clientAuth "DNS:client"
# What Kafka calls a key store of type PEM: key and certificate in one file.
cat broker.key broker.pem >broker.store.pem
openssl pkcs8 -topk8 -in client.key -v2 aes-256-cbc -passout pass:secret -out client.encrypted.key
rm ca.key stranger.key
chmod 644 ./*.key
