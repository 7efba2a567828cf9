{{/* Which pods the API server sends to the webhook: no other pod waits for it. */}}

{{- define "gpushare.webhookConditions" -}}
{{- $requests := printf "has(c.resources) && has(c.resources.limits) && %s.exists(r, r in c.resources.limits)" (include "gpushare.requestedResources" .) -}}
# Extended resources are always in the limits.
- name: requests-gpu-shares
  expression: >-
    object.spec.containers.exists(c, {{ $requests }})
    || (has(object.spec.initContainers) && object.spec.initContainers.exists(c, {{ $requests }}))
{{- if include "gpushare.second" . }}
# A pod that names another scheduler is that scheduler's. One that names ours is only checked.
- name: default-scheduler-or-ours
  expression: >-
    !has(object.spec.schedulerName)
    || object.spec.schedulerName in {{ list "" "default-scheduler" .Values.scheduler.name | toJson }}
{{- end }}
{{- end -}}

{{/* What a pod can request of GPUs, as a CEL list. */}}
{{- define "gpushare.requestedResources" -}}
{{- $found := list -}}
{{- range list "gpu-mem" "gpu-core.percentage" "gpu" -}}
{{- $found = append $found (printf "%s/%s" $.Values.resourceDomain .) -}}
{{- end -}}
{{- toJson $found -}}
{{- end -}}
