{{/* What pods show who call them: the operator's secrets, or pairs that are made once and kept. */}}

{{/*
A pair and its authority in base64, as JSON. Those of the secret of this name where it is there, so
that nothing distrusts the pods over an upgrade: (list root "secret" (list "host") (list "address")).
*/}}
{{- define "gpushare.pair" -}}
{{- $name := index . 1 -}}
{{- $hosts := index . 2 -}}
{{- $data := (lookup "v1" "Secret" (index . 0).Release.Namespace $name).data -}}
{{- if not $data -}}
{{- $authority := genCA $name 3650 -}}
{{- $pair := genSignedCert (first $hosts) (index . 3) $hosts 3650 $authority -}}
{{- $data = dict "ca.crt" ($authority.Cert | b64enc) "tls.crt" ($pair.Cert | b64enc) "tls.key" ($pair.Key | b64enc) -}}
{{- end -}}
{{- toJson $data -}}
{{- end -}}

{{/* A secret with a pair: (list root "component" "secret" data). */}}
{{- define "gpushare.pairSecret" -}}
{{- $root := index . 0 -}}
apiVersion: v1
kind: Secret
metadata:
  name: {{ index . 2 }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "gpushare.labels" (list $root (index . 1)) | nindent 4 }}
type: kubernetes.io/tls
data:
  {{- toYaml (index . 3) | nindent 2 }}
{{- end -}}

{{/* The secret of all metrics ports. */}}
{{- define "gpushare.metricsSecret" -}}
{{- default (include "gpushare.name" (list . "metrics")) .Values.monitoring.tls.secretName -}}
{{- end -}}

{{/* The name that their certificate is for: pods are scraped by addresses, which nobody can certify. */}}
{{- define "gpushare.metricsHost" -}}
{{- include "gpushare.name" (list . "metrics") }}.{{ .Release.Namespace }}.svc
{{- end -}}

{{/* The same place in every container with such a port. */}}
{{- define "gpushare.metricsFolder" -}}
/etc/gpushare-metrics
{{- end -}}

{{- define "gpushare.metricsMount" -}}
{{- if .Values.monitoring.tls.enabled }}
- name: metrics-certificate
  mountPath: {{ include "gpushare.metricsFolder" . }}
  readOnly: true
{{- end }}
{{- end -}}

{{- define "gpushare.metricsVolume" -}}
{{- if .Values.monitoring.tls.enabled }}
- name: metrics-certificate
  secret:
    secretName: {{ include "gpushare.metricsSecret" . }}
{{- end }}
{{- end -}}

{{- define "gpushare.metricsScheme" -}}
{{- ternary "HTTPS" "HTTP" .Values.monitoring.tls.enabled -}}
{{- end -}}
