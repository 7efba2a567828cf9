{{/* GPUs as ResourceClaims. */}}

{{/* Driver name in ResourceSlices and ResourceClaims. */}}
{{- define "gpushare.claimDriver" -}}gpu.gpushare.io{{- end -}}

{{/*
"true" where nodes can offer claims: the values ask for it, and the cluster has the API. Only `auto`
installs on older clusters as well, without claims.
*/}}
{{- define "gpushare.claims" -}}
{{- $supported := semverCompare ">=1.36.0-0" .Capabilities.KubeVersion.Version -}}
{{- if and (or .Values.claims.enabled (eq .Values.api "claims")) (not $supported) -}}
{{- fail (printf "claims need Kubernetes 1.36, which has consumable capacity by default; this is %s: set api=devices or api=auto, and claims.enabled=false" .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- if and $supported (or .Values.claims.enabled (ne .Values.api "devices")) -}}true{{- end -}}
{{- end -}}

{{/* "true" where nodes without the label gpushare/api offer claims. */}}
{{- define "gpushare.claimsFirst" -}}
{{- if and (include "gpushare.claims" .) (ne .Values.api "devices") -}}true{{- end -}}
{{- end -}}
