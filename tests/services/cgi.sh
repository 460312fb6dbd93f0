#!/bin/sh
# A CGI script that answers with what it reads as the gate's headers, a line each.
printf 'Content-Type: text/plain\r\n\r\n'
env | sed -n 's/^HTTP_\(KYA.*=..*\)$/\1/p' | sort
