{{/* Pods that the API server sends to the webhook; the creation of other pods does not wait for it. */}}

{{- define "gpushare.webhookConditions" -}}
{{- $requests := printf "has(c.resources) && has(c.resources.limits) && %s.exists(r, r in c.resources.limits)" (include "gpushare.requestedResources" .) -}}
{{- $guarded := include "gpushare.guardedVariables" . -}}
{{- $sets := printf "has(c.env) && c.env.exists(e, e.name in %s)" $guarded -}}
{{- /* A longer prefix makes none of the names, and its length would count for the cost of the condition, beyond whose limit no pod is sent. */}}
{{- $prefixed := printf "%s.exists(name, name.startsWith(s.prefix))" $guarded | printf "has(s.prefix) && s.prefix != '' && s.prefix.size() < 40 && %s" -}}
{{- $makes := printf "has(c.envFrom) && c.envFrom.exists(s, %s)" $prefixed -}}
# Extended resources are always in the limits. In mode second a pod that names another scheduler is
# that scheduler's. A pod that sets a variable which chooses GPUs or widens a limit is always checked, as is
# one whose envFrom has a prefix that can make such a name, and one with very many containers or variables,
# which the API server does not look through itself.
- name: requests-gpu-shares-or-chooses-gpus
  expression: >-
    !{{ include "gpushare.fewEntries" "object.spec.containers" }}
    || (has(object.spec.initContainers) && !{{ include "gpushare.fewEntries" "object.spec.initContainers" }})
    || (has(object.spec.ephemeralContainers) && !{{ include "gpushare.fewEntries" "object.spec.ephemeralContainers" }}) ? true :
    ((object.spec.containers.exists(c, {{ $requests }})
    || (has(object.spec.initContainers) && object.spec.initContainers.exists(c, {{ $requests }})))
    {{- if include "gpushare.second" . }}
    && (!has(object.spec.schedulerName)
    || object.spec.schedulerName in {{ include "gpushare.burst" . | list "" "default-scheduler" .Values.scheduler.name | uniq | toJson }})
    {{- end }})
    || object.spec.containers.exists(c, {{ $sets }} || {{ $makes }})
    || (has(object.spec.initContainers) && object.spec.initContainers.exists(c, {{ $sets }} || {{ $makes }}))
    || (has(object.spec.ephemeralContainers) && object.spec.ephemeralContainers.exists(c, {{ $sets }} || {{ $makes }}))
{{- end -}}

{{/* Variables that choose GPUs or replace the limit of a share, as a CEL list. */}}
{{- define "gpushare.guardedVariables" -}}
{{- prepend (include "gpushare.limitVariables" . | fromJsonArray) "NVIDIA_VISIBLE_DEVICES" | toJson -}}
{{- end -}}

{{/* Namespaces whose pods the API server never sends: those of the cluster's own software. */}}
{{- define "gpushare.webhookExcluded" -}}
{{- toJson (concat .Values.webhook.excludedNamespaces (include "gpushare.exemptNamespaces" . | fromJsonArray) | uniq) -}}
{{- end -}}

{{/* Names of the webhooks, as a JSON list; the one whose name begins with "claims." converts pods. */}}
{{- define "gpushare.webhooks" -}}
{{- eq .Values.webhook.claims "off" | ternary (list "pods.gpushare.io") (list "pods.gpushare.io" "claims.pods.gpushare.io") | toJson -}}
{{- end -}}

{{/* Namespaces of one webhook by their label: [value of webhook.claims, whether it converts]. */}}
{{- define "gpushare.webhookApi" -}}
{{- $mode := index . 0 -}}
{{- $converts := index . 1 -}}
{{- $value := eq $mode "namespaces" | ternary "claims" "devices" -}}
{{- $in := eq (eq $mode "namespaces") $converts | ternary "In" "NotIn" -}}
{{- dict "key" "gpushare/api" "operator" $in "values" (list $value) | toJson -}}
{{- end -}}
