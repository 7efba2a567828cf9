{{/* Requests and limits, every amount as text: clusters of 1.20 refuse a number. */}}

{{- define "gpushare.resources" -}}
{{- range $kind, $amounts := . }}
{{ $kind }}:
  {{- range $name, $amount := $amounts }}
  {{ $name }}: {{ $amount | toString | quote }}
  {{- end }}
{{- end }}
{{- end -}}
