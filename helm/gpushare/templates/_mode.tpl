{{/*
The two ways to run the extender. `second`: beside a kube-scheduler of its own, in the scheduler's
pods. `extender`: alone, behind a Service, called by the cluster's own kube-scheduler.
*/}}

{{/* "true" in mode second, else empty. */}}
{{- define "gpushare.second" -}}
{{- if eq .Values.scheduler.mode "second" -}}true{{- end -}}
{{- end -}}

{{/* Component whose pods hold the extender. */}}
{{- define "gpushare.component" -}}
{{- eq .Values.scheduler.mode "second" | ternary "scheduler" "extender" -}}
{{- end -}}
