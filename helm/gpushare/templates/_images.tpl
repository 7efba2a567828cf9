{{/* Names of this project's images. No public registry has them, so there is no default registry. */}}

{{- define "gpushare.imageRegistry" -}}
{{- default .Values.image.registry (.Values.global).imageRegistry | trimSuffix "/" -}}
{{- end -}}

{{/* "true" where a repository begins with a registry: a host with a dot or a port, or localhost. */}}
{{- define "gpushare.namesRegistry" -}}
{{- if regexMatch "^([^/]*[.:][^/]*|localhost)/" . -}}true{{- end -}}
{{- end -}}

{{/* Repository with its registry: (list root .Values.extender.image). */}}
{{- define "gpushare.repository" -}}
{{- $registry := include "gpushare.imageRegistry" (index . 0) -}}
{{- $repository := (index . 1).repository -}}
{{- if include "gpushare.namesRegistry" $repository -}}
{{- $repository -}}
{{- else if eq $registry "local" -}}
{{- $repository -}}
{{- else if $registry -}}
{{- printf "%s/%s" $registry $repository -}}
{{- else -}}
{{- fail (printf "no registry is set for image %s: push the images to your registry and set image.registry (or global.imageRegistry) to it; on a local cluster build them with `make images`, load them into the nodes and set image.registry=local" $repository) -}}
{{- end -}}
{{- end -}}

{{/* One of our images: (list root .Values.extender.image). */}}
{{- define "gpushare.image" -}}
{{- printf "%s:%s" (include "gpushare.repository" .) (default (index . 0).Chart.AppVersion (index . 1).tag) -}}
{{- end -}}

{{/* A name without a registry would be pulled from Docker Hub: (list root .Values.extender.image). */}}
{{- define "gpushare.pullPolicy" -}}
{{- $named := include "gpushare.namesRegistry" (index . 1).repository -}}
{{- if and (not $named) (eq (include "gpushare.imageRegistry" (index . 0)) "local") -}}
Never
{{- else -}}
{{- (index . 1).pullPolicy -}}
{{- end -}}
{{- end -}}
