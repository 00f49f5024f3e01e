#!/bin/sh
# Prints the licence of settled and of every module that is in its binary.
set -eu
cat LICENSE
go list -deps -f '{{with .Module}}{{if .Version}}{{.Path}} {{.Version}} {{.Dir}}{{end}}{{end}}' ./cmd/settled | sort -u |
	while read -r path version dir; do
		printf '\n==== %s %s\n\n' "$path" "$version"
		found=
		for f in "$dir"/LICENSE* "$dir"/LICENCE* "$dir"/COPYING*; do
			if [ -f "$f" ]; then
				cat "$f"
				found=yes
			fi
		done
		if [ -z "$found" ]; then
			echo "no licence file in $path" >&2
			exit 1
		fi
	done
